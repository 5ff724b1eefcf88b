#!/bin/sh
# A worker in shell that is no runner of taskqueue: claims tasks of the class "checksum" one at a time, until none has come
# for a while. It has only the files below DIRECTORY, and rejects tasks about others: somebody else may have them. At TERM it
# releases its run at no cost and ends.
#
#   TASKQUEUE_CLAIMANT=shell-1 worker.sh DIRECTORY [WAIT]
#
# The address of the database stands in TASKQUEUE_DATABASE_URL, as for every command of taskqueue.

set -u
directory=${1:?usage: worker.sh DIRECTORY [WAIT]}
wait=${2-30s}
cancelled=3 lost=4 stopped=5

output=$(mktemp) && verdict=$(mktemp) || exit 1
trap 'rm -f "$output" "$verdict"' EXIT
# A shell sees a signal only between two commands, or in `wait`: what takes long is a child that is waited for.
stopping='' child=''

# Asks the child to end. Before it has become its program the signal is lost, so that it is sent twice.
stop() {
    stopping=1
    [ -n "$child" ] || return 0
    kill -TERM "$child" 2>/dev/null
    sleep 0.2
    kill -TERM "$child" 2>/dev/null
}
trap stop TERM

# Waits for the process $child, also when a signal comes meanwhile. Returns its exit status.
wait_for_child() {
    # The signal may have come before the child was known.
    [ -z "$stopping" ] || stop
    wait "$child" 2>/dev/null
    status=$?
    if [ "$status" -gt 128 ] && [ -n "$stopping" ]; then
        # Interrupted: what the child ended with is still to come, unless it was ended by a signal.
        wait "$child" 2>/dev/null
        again=$?
        [ "$again" -eq 127 ] || status=$again
    fi
    child=''
    return "$status"
}

# The fields of a line of `claim` always stand in this order.
field() {
    # shellcheck disable=SC1003 # the backslash before the quote is sed's
    printf '%s\n' "$line" | sed -n 's/^{"run_id":\([0-9]*\),"task_id":[0-9]*,"token":"\([^"]*\)","class":"[^"]*","data":\(.*\),"attempt":[0-9]*,"max_retries":[0-9]*,"timeout_secs":\([0-9]*\),"deadline":"[^"]*"}$/\'"$1"'/p'
}

# Says something of the run, and looks at the answer.
tell() {
    said=$(taskqueue "$@" --token "$token")
    case $? in
        0) [ -z "$said" ] || return "$cancelled" ;;
        # The database is away or busy: so far nobody else has the run.
        69 | 75) ;;
        *) return "$lost" ;;
    esac
}

# Moves the deadline while the process $1 works, and stops that when somebody wants the run to end, or has taken it: after a
# third of the time that there is, and soon enough for who cancels.
beat() {
    tenths=$((timeout * 10 / 3))
    [ "$tenths" -le 50 ] || tenths=50
    while sleep "$((tenths / 10)).$((tenths % 10))"; do
        tell heartbeat "$run" || {
            echo "$?" >"$verdict"
            kill -TERM "$1"
            exit
        }
    done
}

# The work, in a process of its own. With the token in its environment it is ended with the run, also when this worker dies.
digest() {
    : >"$verdict"
    TASKQUEUE_RUN_TOKEN=$token sha256sum "$file" >"$output" &
    child=$!
    beat "$child" >/dev/null 2>&1 &
    heart=$!
    wait_for_child
    status=$?
    # A process that has just begun still has the traps of this shell, and would lose any other signal.
    kill -KILL "$heart" 2>/dev/null
    wait "$heart" 2>/dev/null
    ! read -r ended <"$verdict" || return "$ended"
    [ "$status" -eq 0 ] || [ -z "$stopping" ] || return "$stopped"
    return "$((status != 0))"
}

read_file() {
    tell progress "$run" 50 "reading $file" && digest
    case $? in
        0) read -r sum _ <"$output"; taskqueue resolve "$run" --token "$token" --results "{\"sha256\":\"$sum\"}" ;;
        "$cancelled") taskqueue resolve "$run" --token "$token" --error cancelled --message 'stopped when asked to' ;;
        "$stopped") release ;;
        # Somebody else has the task.
        "$lost") ;;
        *) taskqueue resolve "$run" --token "$token" --error unreadable --message "$file cannot be read" ;;
    esac
}

# At no cost: the task is due at once, for everybody.
release() {
    taskqueue release "$run" --token "$token" --no-reject --reason 'the worker was stopped'
}

while [ -z "$stopping" ]; do
    taskqueue claim --class checksum --wait "$wait" --process $$ >"$output" &
    child=$!
    wait_for_child
    claimed=$?
    # Stopped, and nothing was claimed; a signal that comes early ends `claim` with another status.
    if [ -n "$stopping" ] && [ "$claimed" -ne 0 ]; then exit 0; fi
    case $claimed in
        0) ;;
        # Nothing came in all that time.
        124) exit 0 ;;
        # The database is away or busy.
        69 | 75) sleep 5 & child=$!; wait_for_child; continue ;;
        *) exit 1 ;;
    esac
    line=$(cat "$output")
    run=$(field 1) token=$(field 2) data=$(field 3) timeout=$(field 4)
    file=$(printf '%s\n' "$data" | sed -n 's/^{"file": *"\(\/[^"\\]*\)"}$/\1/p')
    # It may have been stopped when it had just claimed.
    if [ -n "$stopping" ]; then release; break; fi
    # What it is told when its time was over is on standard error.
    case $file in
        '') taskqueue resolve "$run" --token "$token" --error invalid-data --message 'the data must be {"file":"/path"}' --no-retry ;;
        "$directory"/*) read_file ;;
        *) taskqueue release "$run" --token "$token" --reason "$file is not here" ;;
    esac
done
