# shellcheck shell=sh
# What a handler in shell says to its runner: a file to be read with `.`, for any POSIX shell.
#
#   . /usr/local/lib/taskqueue-handler.sh
#
#   data=$(cat)
#   taskqueue_progress 40 "page 4 of 10"
#   taskqueue_result '{"pages":10}'
#   test -e /dev/lp0 || taskqueue_fail no-printer "there is no printer" --delay 600
#
# A script that ends in the middle with exit code 0 has succeeded. Where that must not be, write the work as a function:
#
#   taskqueue_serve my_function
#
# It needs no `taskqueue` in PATH, except for taskqueue_messages. docs/handlers.md has what each line means.

# PERCENT [MESSAGE]: 0 to 100, and a line for people. Like every report it starts the timeout again.
taskqueue_progress() {
    taskqueue_say "{\"progress\":$1,\"message\":$(taskqueue_text "${2-}")}"
}

# JSON: the results so far; later ones replace them.
taskqueue_result() {
    taskqueue_say "{\"result\":$1}"
}

# NAME TEXT: added to the metadata of the task when the run ends, however it ends.
taskqueue_meta() {
    taskqueue_say "{\"meta\":{$(taskqueue_text "$1"):$(taskqueue_text "$2")}}"
}

# It is still at work.
taskqueue_heartbeat() {
    taskqueue_say '{"heartbeat":true}'
}

# NAME [JSON]: a message for whoever follows.
taskqueue_emit() {
    taskqueue_say "{\"event\":$(taskqueue_text "$1"),\"data\":${2-null}}"
}

# Prints the messages that are sent to this task, one JSON object a line, until its reader has gone: those to this attempt, and those
# that were kept for it. Needs `taskqueue` in PATH.
taskqueue_messages() {
    taskqueue events --task "$TASKQUEUE_TASK_ID" --run "$TASKQUEUE_RUN_ID" --kind message-to-task -n 1000 --follow --json
}

# Prints why the script is to end, for a trap of TERM: cancel, timeout, shutdown or lease-lost; nothing while it may go on. Once.
taskqueue_stop_reason() {
    cat <&4
}

# CODE MESSAGE [--no-retry | --delay SECONDS]: the run fails, and the script ends.
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

# COMMAND…: calls it, and ends the script with its status. To call `exit` in there is a failure, whatever its status.
taskqueue_serve() {
    trap 'taskqueue_say "{\"error\":{\"code\":\"exit\",\"message\":\"the handler called exit before it returned\"}}"' EXIT
    "$@"
    taskqueue_status=$?
    trap - EXIT
    exit "$taskqueue_status"
}

# TEXT: the same as JSON, with its quotes, whatever characters are in it.
taskqueue_text() {
    printf '%s.' "$1" | LC_ALL=C awk 'BEGIN { for (i = 1; i < 32; i++) as[sprintf("%c", i)] = sprintf("\\u%04x", i); as["\""] = "\\\""; as["\\"] = "\\\\" }
        { for (i = 1; i <= length($0); i++) { c = substr($0, i, 1); out = out ((c in as) ? as[c] : c) } out = out "\\n" }
        END { print "\"" substr(out, 1, length(out) - 3) "\"" }'
}

# One JSON object a line, as the protocol has it.
taskqueue_say() {
    printf '%s\n' "$1" >&3
}
