#!/bin/sh
# A worker in shell that is no runner of taskqueue: claims tasks of the class "checksum" one at a time, until none has come
# for a while. It has only the files below DIRECTORY, and rejects tasks about others: somebody else may have them.
#
#   TASKQUEUE_CLAIMANT=shell-1 worker.sh DIRECTORY [WAIT]
#
# The address of the database stands in TASKQUEUE_DATABASE_URL, as for every command of taskqueue.

set -u
directory=${1:?usage: worker.sh DIRECTORY [WAIT]}
wait=${2-30s}

# The fields of a line of `claim` always stand in this order.
field() {
    # shellcheck disable=SC1003 # the backslash before the quote is sed's
    printf '%s\n' "$line" | sed -n 's/^{"run_id":\([0-9]*\),"task_id":[0-9]*,"token":"\([^"]*\)","class":"[^"]*","data":\(.*\),"attempt":[0-9]*,"max_retries":[0-9]*,"timeout_secs":\([0-9]*\),"deadline":"[^"]*"}$/\'"$1"'/p'
}

# Moves the deadline three times in the time that there is, and stops with the first refusal.
beat() {
    seconds=0
    while sleep 1; do
        seconds=$((seconds + 1))
        if [ $((seconds * 3)) -ge "$timeout" ]; then
            taskqueue heartbeat "$run" --token "$token" || exit
            seconds=0
        fi
    done
}

work() {
    file=$(printf '%s\n' "$data" | sed -n 's/^{"file": *"\(\/[^"\\]*\)"}$/\1/p')
    case $file in
        '') taskqueue resolve "$run" --token "$token" --error invalid-data --message 'the data must be {"file":"/path"}' --no-retry ;;
        "$directory"/*)
            taskqueue progress "$run" 50 "reading $file" --token "$token"
            if sum=$(sha256sum <"$file"); then
                taskqueue resolve "$run" --token "$token" --results "{\"sha256\":\"${sum%% *}\"}"
            else
                taskqueue resolve "$run" --token "$token" --error unreadable --message "$file cannot be read"
            fi
            ;;
        *) taskqueue release "$run" --token "$token" --reason "$file is not here" ;;
    esac
}

while :; do
    line=$(taskqueue claim --class checksum --wait "$wait" --process $$)
    case $? in
        0) ;;
        # Nothing came in all that time.
        124) exit 0 ;;
        # The database is away or busy.
        69 | 75) sleep 5; continue ;;
        *) exit 1 ;;
    esac
    run=$(field 1) token=$(field 2) data=$(field 3) timeout=$(field 4)
    beat >/dev/null 2>&1 &
    heart=$!
    # What it is told when its time was over is on standard error; somebody else has the task then.
    work
    kill "$heart"
    wait "$heart" 2>/dev/null
done
