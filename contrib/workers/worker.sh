#!/bin/sh
# A claimant in shell: claims tasks of the class "checksum" one at a time, until it has waited WAIT without a new task. It
# processes only files below DIRECTORY and rejects tasks for other files, because another worker may have them. At TERM it
# releases its run at no cost and exits.
#
#   TASKQUEUE_CLAIMANT=shell-1 worker.sh DIRECTORY [WAIT]
#
# Set the address of the database in TASKQUEUE_DATABASE_URL, as for every command of taskqueue.

set -u
directory=${1:?usage: worker.sh DIRECTORY [WAIT]}
directory=$(realpath "$directory") || exit 2
wait=${2-30s}
cancelled=3 lost=4 stopped=5

output=$(mktemp) && verdict=$(mktemp) || exit 1
trap 'rm -f "$output" "$verdict"' EXIT
# A shell handles a signal only between two commands, or in `wait`, so everything that takes long runs as a child.
stopping='' child=''

# Sends TERM to the child, twice: the signal is lost if the child has not yet executed its program.
stop() {
    stopping=1
    [ -n "$child" ] || return 0
    kill -TERM "$child" 2>/dev/null
    sleep 0.2
    kill -TERM "$child" 2>/dev/null
}
trap stop TERM

# Waits for the process $child, also if a signal arrives. Returns its exit status.
wait_for_child() {
    # The signal may have arrived before $child was set.
    [ -z "$stopping" ] || stop
    wait "$child" 2>/dev/null
    status=$?
    if [ "$status" -gt 128 ] && [ -n "$stopping" ]; then
        # The wait was interrupted, or the child was ended by a signal: in the first case, get its status.
        wait "$child" 2>/dev/null
        again=$?
        [ "$again" -eq 127 ] || status=$again
    fi
    child=''
    return "$status"
}

# The fields of a line of `claim` always have this order.
field() {
    # shellcheck disable=SC1003 # the backslash before the quote is sed's
    printf '%s\n' "$line" | sed -n 's/^{"run_id":\([0-9]*\),"task_id":[0-9]*,"token":"\([^"]*\)","class":"[^"]*","data":\(.*\),"attempt":[0-9]*,"max_retries":[0-9]*,"timeout_secs":\([0-9]*\),"deadline":"[^"]*"}$/\'"$1"'/p'
}

# Reports on the run, and checks the answer.
tell() {
    said=$(taskqueue "$@" --token "$token")
    case $? in
        0) [ -z "$said" ] || return "$cancelled" ;;
        # The database is unreachable or busy: no other process has taken the run yet.
        69 | 75) ;;
        *) return "$lost" ;;
    esac
}

# Extends the deadline while the process $1 works, and stops the process if the end of the run is requested or the run is
# lost. Reports after each third of the timeout, and often enough to notice a cancel soon.
beat() {
    tenths=$((timeout * 10 / 3))
    [ "$tenths" -le 50 ] || tenths=50
    while sleep "$((tenths / 10)).$((tenths % 10))"; do
        tell worker heartbeat "$run" || {
            echo "$?" >"$verdict"
            kill -TERM "$1"
            exit
        }
    done
}

# Does the work in a separate process. The token in its environment lets taskqueue end it with the run, also if this worker dies.
digest() {
    : >"$verdict"
    TASKQUEUE_RUN_TOKEN=$token sha256sum "$file" >"$output" &
    child=$!
    beat "$child" >/dev/null 2>&1 &
    heart=$!
    wait_for_child
    status=$?
    # A new process still has the traps of this shell, and would lose any other signal.
    kill -KILL "$heart" 2>/dev/null
    wait "$heart" 2>/dev/null
    ! read -r ended <"$verdict" || return "$ended"
    [ "$status" -eq 0 ] || [ -z "$stopping" ] || return "$stopped"
    return "$((status != 0))"
}

read_file() {
    tell report progress "$run" 50 "reading $file" && digest
    case $? in
        0) read -r sum _ <"$output"; taskqueue worker resolve "$run" --token "$token" --results "{\"sha256\":\"$sum\"}" ;;
        "$cancelled") taskqueue worker resolve "$run" --token "$token" --error cancelled --message 'stopped when asked to' ;;
        "$stopped") release ;;
        # Another process has the task.
        "$lost") ;;
        *) taskqueue worker resolve "$run" --token "$token" --error unreadable --message "$file cannot be read" ;;
    esac
}

# At no cost: the task is due at once, for every worker.
release() {
    taskqueue worker release "$run" --token "$token" --no-reject --reason 'the worker was stopped'
}

while [ -z "$stopping" ]; do
    taskqueue worker claim --class checksum --wait "$wait" --process $$ >"$output" &
    child=$!
    wait_for_child
    claimed=$?
    # Stopped, and nothing was claimed; an early signal ends `claim` with another status.
    if [ -n "$stopping" ] && [ "$claimed" -ne 0 ]; then exit 0; fi
    case $claimed in
        0) ;;
        # The wait has passed without a new task.
        124) exit 0 ;;
        # The database is unreachable or busy.
        69 | 75) sleep 5 & child=$!; wait_for_child; continue ;;
        *) exit 1 ;;
    esac
    line=$(cat "$output")
    run=$(field 1) token=$(field 2) data=$(field 3) timeout=$(field 4)
    file=$(printf '%s\n' "$data" | sed -n 's/^{"file": *"\(\/[^"\\]*\)"}$/\1/p')
    # The signal may have arrived just after the claim.
    if [ -n "$stopping" ]; then release; break; fi
    # A link or `..` may lead out of DIRECTORY.
    path=$file
    [ -z "$file" ] || path=$(realpath "$file" 2>/dev/null) || path=none
    # If the deadline has passed, `taskqueue` reports this on standard error.
    case $path in
        '') taskqueue worker resolve "$run" --token "$token" --error invalid-data --message 'the data must be {"file":"/path"}' --no-retry ;;
        "${directory%/}"/*) read_file ;;
        *) taskqueue worker release "$run" --token "$token" --reason "$file is not here" ;;
    esac
done
