# shellcheck shell=sh
# Queues tasks from a shell script: source this file with `.` in any POSIX shell.
#
#   . /usr/local/lib/taskqueue-queue.sh
#
#   id=$(taskqueue_queue mail.send "{\"to\":$(taskqueue_text "$address")}" --unique welcome-17 --in 10m) || exit
#
# The data is passed on standard input, because an argument could be too long, and every user can read it. If nothing is queued,
# the function prints the reason on standard error and returns the exit status of the program. Not supported: --run and --wait,
# which return the exit status of the handler, and --batch, which prints several ids. For more, see
# docs/handlers.md#queueing-from-a-program.

# CLASS JSON [OPTION...]: queues a task and prints its id. If another task already has the --unique key, prints the id of that
# task.
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

# TEXT: prints the text as JSON, with quotes; it may contain any characters.
taskqueue_text() {
    printf '%s.' "$1" | LC_ALL=C awk 'BEGIN { for (i = 1; i < 32; i++) as[sprintf("%c", i)] = sprintf("\\u%04x", i); as["\""] = "\\\""; as["\\"] = "\\\\" }
        { for (i = 1; i <= length($0); i++) { c = substr($0, i, 1); out = out ((c in as) ? as[c] : c) } out = out "\\n" }
        END { print "\"" substr(out, 1, length(out) - 3) "\"" }'
}
