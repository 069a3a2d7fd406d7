#!/bin/bash
# Follows one rank of an attempt on Slurm: its output, what it is told, its end.
# The rank's own environment is not here but in child.sh, which becomes the rank.
here=$FALAJ_FOLDER
rank=$SLURM_PROCID
. "$here/launch.sh"
log=$here/rank-$rank.log

# Written whole, and before anybody can act on it.
ended() {
    {
        echo "rank $rank $* $(date +%s%3N)"
        if [ -n "$told" ]; then echo told; else echo "untold $rank"; fi
    } >"$here/rank-$rank.end.part"
    mv -T "$here/rank-$rank.end.part" "$here/rank-$rank.end"
}

# Some Slurms signal every process of a step, others only this one, which then passes it on.
pass_on() {
    [ -n "$FALAJ_PASS_ON" ] || return
    kill "-$1" -- "$2$(cat "$here/rank-$rank.pid" 2>/dev/null)" 2>/dev/null || early=$1
}

told= early=
trap 'told=1; : >"$here/told"; pass_on TERM -' TERM
trap 'pass_on USR1 ""' USR1
: >>"$log"
# Told before there was anything to tell it to.
[ -e "$here/stop" ] && { ended signal 15; exit 0; }

# All of the job on this node, in Slurm's order, unless each rank has its own.
devices=$CUDA_VISIBLE_DEVICES
if [ "$falaj_gpus_per_rank" -gt 0 ]; then
    # The GPUs of the job on this node, shared out among its ranks there.
    IFS=, read -r -a gpus <<<"$CUDA_VISIBLE_DEVICES"
    mine=("${gpus[@]:$((SLURM_LOCALID * falaj_gpus_per_rank)):$falaj_gpus_per_rank}")
    devices=$(IFS=,; echo "${mine[*]}")
fi

cd "$falaj_folder" 2>/dev/null || {
    echo "falaj: folder: \`$falaj_folder' is not there, or is no folder" >>"$log"
    ended not-started
    exit 1
}

# Whether some rank has failed. Files of other nodes are seen late, so this is asked more than once.
a_rank_failed() { grep -hs '^rank ' "$here"/rank-*.end | grep -qv '^rank [0-9]* exit 0 '; }

# Kills it when its time is up: soon if another rank has failed, else after the grace of a stop.
kill_later() {
    trap '' TERM USR1
    local told_at
    told_at=$(date +%s%3N)
    while :; do
        local gone=$(($(date +%s%3N) - told_at))
        [ "$gone" -ge "$falaj_grace_ms" ] && break
        [ "$gone" -ge "$falaj_gang_grace_ms" ] && a_rank_failed && break
        sleep 0.2
    done
    kill -KILL -- "-$(cat "$here/rank-$rank.pid")"
}

# What the processes of its session use: thousandths of a second of CPU, bytes of memory now and at most, bytes read
# and written. Numbers of processes that have gone are not lost: they only grow.
measure() {
    local nap session stat line fields name value pause=1 pages=4096 cpu=0 peak=0 read=0 written=0
    trap 'kill "$nap" 2>/dev/null; exit 0' TERM
    trap '' USR1
    pages=$(getconf PAGESIZE 2>/dev/null || echo 4096)
    while :; do
        sleep "$pause" &
        nap=$!
        wait "$nap"
        pause=$((pause < 5 ? pause * 2 : 10))
        session=$(cat "$here/rank-$rank.pid" 2>/dev/null) || continue
        local ticks=0 memory=0 got=0 put=0
        for stat in /proc/[0-9]*/stat; do
            { IFS= read -r line <"$stat"; } 2>/dev/null || continue
            # A name may have anything in it, and stands in brackets.
            read -r -a fields <<<"${line##*) }"
            [ "${fields[3]}" = "$session" ] || continue
            ticks=$((ticks + fields[11] + fields[12] + fields[13] + fields[14]))
            memory=$((memory + fields[21] * pages))
            while read -r name value; do
                case $name in
                    read_bytes:) got=$((got + value)) ;;
                    write_bytes:) put=$((put + value)) ;;
                esac
            done 2>/dev/null <"${stat%stat}io"
        done
        cpu=$((ticks * 10 > cpu ? ticks * 10 : cpu))
        peak=$((memory > peak ? memory : peak))
        read=$((got > read ? got : read))
        written=$((put > written ? put : written))
        used "$cpu" "$memory" "$peak" "$read" "$written"
    done
}

used() {
    echo "$*" >"$here/rank-$rank.usage.part"
    mv -T "$here/rank-$rank.usage.part" "$here/rank-$rank.usage"
}

# What all of it has used in the end: what was seen last, and the CPU that the kernel counted.
used_up() {
    local cpu peak read written user system
    read -r cpu _ peak read written _ <"$here/rank-$rank.usage" || return
    { read -r _; read -r user system; } <"$here/rank-$rank.times" || return
    local all=$(($(thousandths "$user") + $(thousandths "$system")))
    used "$((all > cpu ? all : cpu))" 0 "$peak" "$read" "$written"
}

# `1m2.345s` as 62345.
thousandths() {
    local minutes=${1%m*} rest=${1#*m}
    rest=${rest%s}
    echo $((minutes * 60000 + 10#${rest%.*} * 1000 + 10#${rest#*.}))
}

# In a process group of its own, so that all of it can be killed. A shell that waits in the foreground is
# between: the code of a process in the background is not to be had while signals arrive.
(
    trap : TERM USR1
    setsid bash "$here/child.sh" "$here" "$rank" "$devices" "$FALAJ_FIRST_HOST" "${falaj_command[@]}" \
        >>"$log" 2>&1 </dev/null
    echo "$?" >"$here/rank-$rank.code"
    times >"$here/rank-$rank.times"
) 2>/dev/null &
child=$!
measure >/dev/null 2>&1 &
measurer=$!
killer=
while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    # It came before there was a process to pass it on to.
    while [ "$early" = TERM ] && kill -0 "$child" 2>/dev/null; do
        early=
        sleep 0.1
        pass_on TERM -
    done
    if [ -n "$told" ] && [ -z "$killer" ]; then
        kill_later >/dev/null 2>&1 &
        killer=$!
    fi
done
[ -n "$killer" ] && kill -KILL "$killer" 2>/dev/null
kill -TERM "$measurer" 2>/dev/null
wait "$measurer" 2>/dev/null
used_up 2>/dev/null
group=$(cat "$here/rank-$rank.pid" 2>/dev/null)
[ -n "$group" ] && kill -KILL -- "-$group" 2>/dev/null
# A signal reaches the rank and this one in any order: one that is under way is waited for.
[ -z "$told" ] && [ -e "$here/stop" ] && sleep 0.2
# Without a code it was killed with what was around it.
code=$(cat "$here/rank-$rank.code" 2>/dev/null || echo 137)
if [ -e "$here/rank-$rank.not-started" ]; then
    ended not-started
    exit 1
elif [ "$code" -gt 128 ]; then
    ended signal $((code - 128))
else
    ended exit "$code"
fi
exit "$code"
