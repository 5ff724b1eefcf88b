# shellcheck shell=sh
# Queues tasks from a shell script: a file to be read with `.`, for any POSIX shell.
#
#   . /usr/local/lib/taskqueue-queue.sh
#
#   id=$(taskqueue_queue mail.send "{\"to\":$(taskqueue_text "$address")}" --unique welcome-17 --in 10m) || exit
#
# The data goes through standard input: an argument could be too long, and everybody can read it. Where nothing is queued, it says why
# on standard error and returns the exit status of the program. docs/handlers.md#queueing-from-a-program has more.
# Not --run, --wait and --batch: with these the exit status is the handler's, or there is more than one id.

# CLASS JSON [OPTION...]: queues a task and prints its id; that of the task which has its --unique key already, if one has.
taskqueue_queue() {
    taskqueue_queue_class=$1
    taskqueue_queue_data=$2
    shift 2
    for taskqueue_queue_option; do
        case $taskqueue_queue_option in
            --run | --wait | --batch | --run=* | --wait=* | --batch=*)
                echo "the option $taskqueue_queue_option is not for programs that queue; nothing was queued" >&2
                return 2
                ;;
        esac
    done
    printf '%s' "$taskqueue_queue_data" | taskqueue queue "$@" -- "$taskqueue_queue_class" -
}

# TEXT: the same as JSON, with its quotes, whatever characters are in it.
taskqueue_text() {
    printf '%s.' "$1" | LC_ALL=C awk 'BEGIN { for (i = 1; i < 32; i++) as[sprintf("%c", i)] = sprintf("\\u%04x", i); as["\""] = "\\\""; as["\\"] = "\\\\" }
        { for (i = 1; i <= length($0); i++) { c = substr($0, i, 1); out = out ((c in as) ? as[c] : c) } out = out "\\n" }
        END { print "\"" substr(out, 1, length(out) - 3) "\"" }'
}
