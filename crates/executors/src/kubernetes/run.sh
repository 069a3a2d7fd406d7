# Becomes one rank: `run.sh NUMBER OF`, the how manyth of how many in its pod.
#
# Only what every shell has built in is used: images have little else, and the rank's own PATH may lead
# nowhere. What belongs to the rank is read last, so that no name of this script is seen by it.
# Both streams are one, so that they are kept in the order that they were written in.
exec 2>&1
echo "$$" >"/falaj/run/$1"
set -- "/falaj/launch/rank-$((${JOB_COMPLETION_INDEX:-0} * $2 + $1))"
. /falaj/launch/env
. "$1"
. /falaj/launch/command
cd "$1" 2>/dev/null || {
    echo "falaj: folder: \`$1' is not there, or is no folder"
    echo not-started >/dev/termination-log
    exit 127
}
shift
command -v "$1" >/dev/null 2>&1 || {
    echo "falaj: cannot start \`$1': not found"
    echo not-started >/dev/termination-log
    exit 127
}
exec "$@"
