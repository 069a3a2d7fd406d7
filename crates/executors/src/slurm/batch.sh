#!/bin/bash
# An attempt as a Slurm job: starts its ranks as one step, and writes down how they ended.
# The folder of the attempt is FALAJ_FOLDER; launch.sh in it says what to start.
here=$FALAJ_FOLDER
. "$here/launch.sh"

# Of several jobs of this name only one starts anything, and that once: not again if it is requeued.
ln -s "$SLURM_JOB_ID" "$here/owner" 2>/dev/null || exit 0

now() { date +%s%3N; }

finish() {
    {
        cat "$here"/rank-*.end 2>/dev/null
        [ -e "$here/timed-out" ] && echo timed-out
        [ -e "$here/told" ] && echo told
        echo "ended $(now)"
    } >"$here/exit.part"
    mv "$here/exit.part" "$here/exit"
    exit 0
}

now >"$here/started-at"
[ -e "$here/stop" ] && finish

# Where the first rank really is, for those that were told where it was meant to be.
FALAJ_FIRST_HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" 2>/dev/null | head -n 1)
export FALAJ_FIRST_HOST

# A step that is followed by its processes' parents is signalled as a whole; others at its top alone.
FALAJ_PASS_ON=1
scontrol show config 2>/dev/null | grep -q '^ProctrackType.*linuxproc' && FALAJ_PASS_ON=
export FALAJ_PASS_ON

# Told to end: the ranks are told too, and this waits for what they leave.
trap : TERM USR1

if [ -n "$time_limit" ]; then
    (
        sleep "$time_limit"
        : >"$here/timed-out"
        scancel --signal=TERM "$SLURM_JOB_ID.0"
    ) >/dev/null 2>&1 &
    limit=$!
fi

srun --export=ALL --kill-on-bad-exit=1 --ntasks="$ranks" --input=none --unbuffered bash "$here/rank.sh" &
step=$!
while kill -0 "$step" 2>/dev/null; do
    wait "$step"
done
[ -n "$limit" ] && kill "$limit" 2>/dev/null
finish
