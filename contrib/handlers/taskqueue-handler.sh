# shellcheck shell=sh
# Functions with which a handler in shell reports to its runner: source this file with `.` in any POSIX shell.
#
#   . /usr/local/lib/taskqueue-handler.sh
#
#   data=$(cat)
#   taskqueue_progress 40 "page 4 of 10"
#   taskqueue_result '{"pages":10}'
#   test -e /dev/lp0 || taskqueue_fail no-printer "there is no printer" --delay 600
#
# A script that exits early with exit code 0 has succeeded. To prevent that, write the work as a function:
#
#   taskqueue_serve my_function
#
# Only taskqueue_messages needs `taskqueue` in PATH. docs/handlers.md describes each line.

# PERCENT [MESSAGE]: reports progress, 0 to 100, and a message for people. Every report restarts the timeout.
taskqueue_progress() {
    taskqueue_say "{\"progress\":$1,\"message\":$(taskqueue_text "${2-}")}"
}

# JSON: reports the results so far; later results replace them.
taskqueue_result() {
    taskqueue_say "{\"result\":$1}"
}

# NAME TEXT: adds to the metadata of the task when the run ends, with any outcome.
taskqueue_meta() {
    taskqueue_say "{\"meta\":{$(taskqueue_text "$1"):$(taskqueue_text "$2")}}"
}

# Reports that the handler is still working.
taskqueue_heartbeat() {
    taskqueue_say '{"heartbeat":true}'
}

# NAME [JSON]: sends a message to all processes that follow the events.
taskqueue_emit() {
    taskqueue_say "{\"event\":$(taskqueue_text "$1"),\"data\":${2-null}}"
}

# Prints the messages to this attempt and those that were kept for it, one JSON object per line, until the reader closes the pipe.
# Needs `taskqueue` in PATH.
taskqueue_messages() {
    taskqueue events --task "$TASKQUEUE_TASK_ID" --run "$TASKQUEUE_RUN_ID" --kind message-to-task -n 1000 --follow --json
}

# For a trap of TERM: prints why the script must end (cancel, timeout, shutdown or lease-lost), or nothing while it may continue.
# Prints it only once.
taskqueue_stop_reason() {
    cat <&4
}

# CODE MESSAGE [--no-retry | --delay SECONDS]: fails the run and exits.
taskqueue_fail() {
    trap - EXIT
    case ${3-} in
        --no-retry) taskqueue_more=',"retry":false' ;;
        --delay) taskqueue_more=",\"delay\":$4" ;;
        *) taskqueue_more= ;;
    esac
    taskqueue_say "{\"error\":{\"code\":$(taskqueue_text "$1"),\"message\":$(taskqueue_text "$2")$taskqueue_more}}"
    exit 1
}

# COMMAND…: executes it and exits with its status. If the command calls `exit 0`, the run fails.
taskqueue_serve() {
    # Another status fails the run without a report: after `exit 3`, or a command that failed under `set -e`.
    trap '[ $? -ne 0 ] || taskqueue_say "{\"error\":{\"code\":\"exit\",\"message\":\"the handler called exit before it returned\"}}"' EXIT
    "$@"
    taskqueue_status=$?
    trap - EXIT
    exit "$taskqueue_status"
}

# TEXT: prints the text as JSON, with quotes; it may contain any characters.
taskqueue_text() {
    printf '%s.' "$1" | LC_ALL=C awk 'BEGIN { for (i = 1; i < 32; i++) as[sprintf("%c", i)] = sprintf("\\u%04x", i); as["\""] = "\\\""; as["\\"] = "\\\\" }
        { for (i = 1; i <= length($0); i++) { c = substr($0, i, 1); out = out ((c in as) ? as[c] : c) } out = out "\\n" }
        END { print "\"" substr(out, 1, length(out) - 3) "\"" }'
}

# JSON: writes it as one line, as the protocol requires.
taskqueue_say() {
    printf '%s\n' "$1" >&3
}
