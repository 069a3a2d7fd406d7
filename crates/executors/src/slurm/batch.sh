#!/bin/bash
# An attempt as a Slurm job: starts its ranks as one step, and writes down how they ended.
# The folder of the attempt is FALAJ_FOLDER; launch.sh in it says what to start.
# Nothing of the user's environment is here: a rank takes it just before it becomes the user's program.
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
    mv -T "$here/exit.part" "$here/exit"
    exit 0
}

# Secrets are read once, and the file goes; the ranks have them from here, each as FALAJ_SECRET_n.
take_secrets() {
    local one count=0 tries=0
    # Files of other machines are seen late.
    while [ ! -e "$here/$falaj_secrets" ]; do
        tries=$((tries + 1))
        [ "$tries" -gt 300 ] && return 1
        sleep 0.1
    done
    while IFS= read -r -d '' one; do
        export "FALAJ_SECRET_$count=$one"
        count=$((count + 1))
    done <"$here/$falaj_secrets"
    rm -f "$here/$falaj_secrets" "$here/.$falaj_secrets".*
    [ "$count" -gt 0 ]
}

if [ -n "$falaj_secrets" ] && [ ! -e "$here/stop" ] && ! take_secrets; then
    echo "falaj: the secrets of this job did not arrive" >>"$here/rank-0.log"
    echo "rank 0 not-started $(now)" >"$here/rank-0.end"
    finish
fi

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

if [ -n "$falaj_time_limit" ]; then
    (
        sleep "$falaj_time_limit"
        : >"$here/timed-out"
        scancel --signal=TERM "$SLURM_JOB_ID.0"
    ) >/dev/null 2>&1 &
    limit=$!
fi

srun --export=ALL --kill-on-bad-exit=1 --ntasks="$falaj_ranks" --input=none --unbuffered \
    bash "$here/rank.sh" &
step=$!
while kill -0 "$step" 2>/dev/null; do
    wait "$step"
done
[ -n "$limit" ] && kill "$limit" 2>/dev/null
finish
