#!/bin/bash
# One rank of an attempt on Slurm: its environment, its output, its end.
here=$FALAJ_FOLDER
rank=$SLURM_PROCID
. "$here/launch.sh"
. "$here/rank-$rank.sh"
log=$here/rank-$rank.log

# Written whole, and before anybody can act on it.
ended() {
    echo "rank $rank $* $(date +%s%3N)" >"$here/rank-$rank.end.part"
    mv "$here/rank-$rank.end.part" "$here/rank-$rank.end"
}

not_started() {
    echo "falaj: $*" >>"$log"
    ended not-started
    exit 1
}

# Some Slurms signal every process of a step, others only this one, which then passes it on.
pass_on() {
    [ -n "$FALAJ_PASS_ON" ] || return
    kill "-$1" -- "$2$(cat "$here/rank-$rank.pid")" 2>/dev/null || early=$1
}

told= early=
trap 'told=1; : >"$here/told"; pass_on TERM -' TERM
trap 'pass_on USR1 ""' USR1
: >>"$log"
# Told before there was anything to tell it to.
[ -e "$here/stop" ] && { ended signal 15; exit 0; }

export FALAJ_ATTEMPT=$attempt FALAJ_RANK=$rank
[ -n "$MASTER_ADDR" ] && [ "$MASTER_ADDR" = "$wished_host" ] && export MASTER_ADDR=$FALAJ_FIRST_HOST
if [ -n "$gpus_per_rank" ] && [ "$gpus_per_rank" -gt 0 ]; then
    # The GPUs of the job on this node, shared out among its ranks there.
    IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
    mine=("${gpus[@]:$((SLURM_LOCALID * gpus_per_rank)):$gpus_per_rank}")
    CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${mine[*]}")
fi
export CUDA_VISIBLE_DEVICES=${own_devices-$CUDA_VISIBLE_DEVICES}
export -n FALAJ_FOLDER FALAJ_FIRST_HOST FALAJ_PASS_ON

cd "$folder" 2>/dev/null || not_started "folder: \`$folder' is not there, or is no folder"
type -P -- "${command[0]}" >/dev/null || not_started "cannot start \`${command[0]}': not found"

# Whether some rank has failed. Files of other nodes are seen late, so this is asked more than once.
a_rank_failed() { grep -qsv '^rank [0-9]* exit 0 ' "$here"/rank-*.end; }

# Kills it when its time is up: soon if another rank has failed, else after the grace of a stop.
kill_later() {
    trap '' TERM USR1
    local told_at
    told_at=$(date +%s%3N)
    while :; do
        local gone=$(($(date +%s%3N) - told_at))
        [ "$gone" -ge "$grace_ms" ] && break
        [ "$gone" -ge "$gang_grace_ms" ] && a_rank_failed && break
        sleep 0.2
    done
    kill -KILL -- "-$(cat "$here/rank-$rank.pid")"
}

# In a process group of its own, so that all of it can be killed. A shell that waits in the foreground is
# between: the code of a process in the background is not to be had while signals arrive.
(
    trap : TERM USR1
    setsid bash -c 'echo "$$" >"$0"; exec "$@"' "$here/rank-$rank.pid" "${command[@]}" \
        >>"$log" 2>&1 </dev/null
    echo "$?" >"$here/rank-$rank.code"
) 2>/dev/null &
child=$!
killer=
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    if [ "$early" = TERM ]; then
        # It came before there was a process to pass it on to.
        early=
        sleep 0.1
        pass_on TERM -
    fi
    if [ -n "$told" ] && [ -z "$killer" ]; then
        kill_later >/dev/null 2>&1 &
        killer=$!
    fi
done
[ -n "$killer" ] && kill -KILL "$killer" 2>/dev/null
group=$(cat "$here/rank-$rank.pid" 2>/dev/null)
[ -n "$group" ] && kill -KILL -- "-$group" 2>/dev/null
# Without a code it was killed with what was around it.
code=$(cat "$here/rank-$rank.code" 2>/dev/null || echo 137)
if [ "$code" -gt 128 ]; then
    ended signal $((code - 128))
else
    ended exit "$code"
fi
exit "$code"
