#!/bin/bash
# The process that becomes one rank: takes the rank's environment, which is the user's, and starts the
# program. What it still needs afterwards is in its arguments, which no variable can change:
#   FOLDER RANK DEVICES FIRST_HOST COMMAND...
# A notice that comes before the program can hear it is no reason to end.
trap : USR1
. "$1/launch.sh"
readonly falaj_attempt falaj_wished_host

take() {
    local falaj_one
    while IFS= read -r -d '' falaj_one; do
        export "$falaj_one"
    done <"$1"
}

secrets() {
    local falaj_name
    for falaj_name in "${!FALAJ_SECRET_@}"; do
        export "${!falaj_name}"
        unset "$falaj_name"
    done
}

unset FALAJ_FOLDER FALAJ_FIRST_HOST FALAJ_PASS_ON
take "$1/env"
secrets
export CUDA_VISIBLE_DEVICES=$3
take "$1/rank-$2.env"
export FALAJ_ATTEMPT=$falaj_attempt FALAJ_RANK=$2
[ -n "$MASTER_ADDR" ] && [ "$MASTER_ADDR" = "$falaj_wished_host" ] && export MASTER_ADDR=$4

if ! type -P -- "$5" >/dev/null; then
    echo "falaj: cannot start \`$5': not found"
    : >"$1/rank-$2.not-started"
    exit 127
fi
echo "$$" >"$1/rank-$2.pid"
shift 4
exec -- "$@"
