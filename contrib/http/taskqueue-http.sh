# shellcheck shell=sh
# Queues tasks, waits for them and works on them over HTTP, with `taskqueue web` and curl: source this file with `.` in any POSIX
# shell.
#
#   . /usr/local/lib/taskqueue-http.sh
#   TASKQUEUE_HTTP_URL=http://127.0.0.1:8321 TASKQUEUE_HTTP_TOKEN=$(cat queue.token)
#
#   id=$(taskqueue_http_queue mail.send '{"to":"ann@example.org"}' '"unique":"welcome-17","in":"10m"') || exit
#   status=$(taskqueue_http_wait "$id" 60)
#   taskqueue_http_work '["mail.*"]' send-mail --from shop@example.org
#
# A request is repeated after a lost answer if that has no second effect: a task with a "unique" key is queued once (unless
# its on_conflict is "fail": a repeat would be refused), and the end of a run is recorded once. A claim is repeated, too: the
# runs of the lost answer are free again when their lease expires. A function that fails prints CODE: DETAIL of the problem
# on standard error; its exit status is 75 if the next try may succeed, otherwise 1. The code "lost" means that the request
# may have been carried out. For more, see docs/web.md#programs.

# PATH [TYPE [REPEAT]]: sends a request, with standard input as its body if a type is given, and prints the answer. REPEAT is `no` if
# the request must not be carried out twice.
taskqueue_http() (
    path=$1 type=${2-} repeat=${3-yes}
    folder=$(mktemp -d) || exit 75
    trap 'rm -rf "$folder"' EXIT
    set --
    if [ -n "$type" ]; then
        cat >"$folder/body"
        set -- -H "Content-Type: $type" --data-binary "@$folder/body"
    fi
    for pause in 0.25 0.5 1 2 4 ''; do
        # The token is not an argument, which every user can read.
        status=$(printf 'header = "Authorization: Bearer %s"\n' "$TASKQUEUE_HTTP_TOKEN" |
            curl -sS -K - -m 70 "$@" -D "$folder/head" -o "$folder/answer" -w '%{http_code}' "${TASKQUEUE_HTTP_URL%/}/api/v1/$path" 2>"$folder/why")
        case $?,$status in
            0,2??) cat "$folder/answer" && exit ;;
            0,*)
                problem=$(sed -n 's/.*"code":"\([^"]*\)","detail":"\(.*\)"}$/\1: \2/p' "$folder/answer")
                # A proxy answers in its own words.
                problem=${problem:-"proxy: HTTP status $status"}
                ;;
            6,* | 7,*) problem="connect: $(cat "$folder/why")" ;;
            *) problem="lost: $(cat "$folder/why")" status=000 ;;
        esac
        case $status in 000 | 429 | 5??) failed=75 ;; *) failed=1 ;; esac
        case $repeat,$problem in yes,* | *,busy:* | *,too-many:* | *,connect:*) ;; *) pause='' ;; esac
        if [ -z "$pause" ] || [ "$failed" -eq 1 ]; then
            printf '%s\n' "$problem" >&2
            exit "$failed"
        fi
        sleep "$pause"
        [ "$status" != 429 ] || sleep "$(sed -n 's/^[Rr]etry-[Aa]fter: \([0-9]*\).*/\1/p' "$folder/head")"
    done
)

# CLASS JSON [KEYS]: queues a task and prints its id. If a live task has the unique key already, prints the id of that task. KEYS
# are further keys of a line of `taskqueue queue --batch`, as JSON: '"unique":"welcome-17","priority":5'.
taskqueue_http_queue() {
    printf '{"class":%s,"data":%s%s}\n' "$(taskqueue_http_text "$1")" "$(printf '%s' "$2" | tr '\n' ' ')" "${3:+,$3}" |
        taskqueue_http_batch
}

# Queues the tasks on standard input, one per line, all or none, and prints their ids.
taskqueue_http_batch() (
    lines=$(cat)
    # To be repeated, each line has the key first, or no braces after it: then it is not in the data.
    repeat=yes
    printf '%s\n' "$lines" | grep -v '^{"unique":"\|,"unique":"[^"\\]*"[^{}]*}$' >/dev/null && repeat=no
    # A repeat would be refused by its own first attempt.
    case $lines in *'"on_conflict"'*'"fail"'*) repeat=no ;; esac
    answer=$(printf '%s\n' "$lines" | taskqueue_http tasks application/x-ndjson "$repeat") || exit
    printf '%s\n' "$answer" | tr '{' '\n' | sed -n 's/^"id":\([0-9]*\),.*/\1/p'
)

# ID [SECS]: waits until the task has finished, or for this time, and prints its status.
taskqueue_http_wait() (
    left=${2-2147483647}
    while :; do
        secs=$((left < 50 ? left : 50))
        document=$(taskqueue_http "tasks/$1?wait_secs=$secs") || exit
        left=$((left - secs))
        settled=$(printf '%s\n' "$document" | taskqueue_http_of_task is_settled)
        if [ "$settled" = true ] || [ "$left" -le 0 ]; then
            printf '%s\n' "$document" | taskqueue_http_of_task status
            exit
        fi
    done
)

# KEY: prints the value of this key of the task in the document on standard input, if it is a word. The data, the results and the
# messages of a task can contain the same keys, so only the depth of a key tells whose it is.
taskqueue_http_of_task() {
    LC_ALL=C awk -v key="$1" '{
        gsub(/\\./, "_")
        count = split($0, part, "\"")
        # The parts with odd numbers are outside of strings. A key is a string before a colon.
        for (i = 1; i < count; i += 2) {
            outside = part[i]
            depth += gsub(/[{[]/, "", outside)
            depth -= gsub(/[]}]/, "", outside)
            if (part[i + 2] !~ /^:/) continue
            if (depth == 1) member = part[i + 1]
            if (depth != 2 || member != "task" || part[i + 1] != key) continue
            value = part[i + 2]
            sub(/^:/, "", value)
            sub(/[,}].*/, "", value)
            if (value == "") value = part[i + 3]
            if (value ~ /^[a-z]+$/) print value
            exit
        }
    }'
}

# CLASSES [SECS]: claims a run of these classes, a list in JSON; waits up to SECS, at most 50. Sets taskqueue_run, taskqueue_token,
# taskqueue_class, taskqueue_data and taskqueue_timeout. Its exit status is 3 if there is none.
taskqueue_http_claim() {
    taskqueue_claimed=$(printf '{"class":%s,"wait_secs":%s}' "$1" "${2-0}" | taskqueue_http claims application/json) || return
    # The data of a task can contain the same text, but not at the beginning.
    case $taskqueue_claimed in '{"runs":[]'*) return 3 ;; esac
    taskqueue_run=$(taskqueue_http_field 1)
    taskqueue_token=$(taskqueue_http_field 2)
    taskqueue_class=$(taskqueue_http_field 3)
    taskqueue_data=$(taskqueue_http_field 4)
    taskqueue_timeout=$(taskqueue_http_field 5)
}

# NUMBER: prints a field of the claimed run. The fields always have this order.
taskqueue_http_field() {
    # shellcheck disable=SC1003 # the backslash before the quote is sed's
    printf '%s\n' "$taskqueue_claimed" | sed -n 's/^{"runs":\[{"run_id":\([0-9]*\),"task_id":[0-9]*,"token":"\([^"]*\)","class":"\([^"]*\)","data":\(.*\),"attempt":[0-9]*,"max_retries":[0-9]*,"timeout_secs":\([0-9]*\),"deadline":"[^"]*"}\]}$/\'"$1"'/p'
}

# [PERCENTS [TEXT]]: renews the lease of the claimed run. Its exit status is 3 if you should stop working.
taskqueue_http_heartbeat() {
    taskqueue_answer=$(taskqueue_http_end heartbeat "${1:+,\"percents\":$1}${2:+,\"message\":$(taskqueue_http_text "$2")}") || return
    case $taskqueue_answer in *'"cancel_requested":true'*) return 3 ;; esac
}

# [JSON]: ends the claimed run: it has succeeded.
taskqueue_http_resolve() {
    taskqueue_http_end resolve ",\"results\":${1:-null}" >/dev/null
}

# CODE TEXT [RETRY]: ends the claimed run: it has failed, and is not retried if RETRY is `false`.
taskqueue_http_fail() {
    taskqueue_http_end resolve \
        ",\"error\":{\"code\":$(taskqueue_http_text "$1"),\"message\":$(taskqueue_http_text "$2"),\"retry\":${3:-true}}" >/dev/null
}

# TEXT [REJECT]: returns the claimed run without an outcome. This login gets the task again only if REJECT is `false`.
taskqueue_http_release() {
    taskqueue_http_end release ",\"reason\":$(taskqueue_http_text "$1"),\"reject\":${2:-true}" >/dev/null
}

taskqueue_http_end() {
    printf '{"token":"%s"%s}' "$taskqueue_token" "$2" | taskqueue_http "runs/$taskqueue_run/$1" application/json
}

# CLASSES COMMAND [ARGUMENT...]: claims runs one by one, and runs the command with the data on standard input and the class in
# TASKQUEUE_CLASS, while the lease is renewed. If it succeeds, its output is the results, as JSON or empty; otherwise the task has
# failed with the code exit:N. If the end of the run is requested, the command gets TERM. Ends when there was no run for 50 seconds.
taskqueue_http_work() {
    taskqueue_classes=$1
    shift
    while :; do
        taskqueue_http_claim "$taskqueue_classes" "${TASKQUEUE_HTTP_WAIT-50}"
        case $? in
            0) taskqueue_http_handle "$@" ;;
            3) return 0 ;;
            75) sleep 5 ;;
            *) return 1 ;;
        esac
    done
}

taskqueue_http_handle() {
    taskqueue_output=$(mktemp) || return
    printf '%s\n' "$taskqueue_data" | TASKQUEUE_CLASS=$taskqueue_class "$@" >"$taskqueue_output" &
    taskqueue_child=$!
    taskqueue_http_beat "$taskqueue_child" >/dev/null 2>&1 &
    taskqueue_heart=$!
    wait "$taskqueue_child"
    taskqueue_status=$?
    kill -KILL "$taskqueue_heart" 2>/dev/null
    wait "$taskqueue_heart" 2>/dev/null
    # If the lease has expired, another process may have the task; the reason is printed.
    if [ "$taskqueue_status" -eq 0 ]; then
        taskqueue_refused=invalid-results
        taskqueue_problem=$(taskqueue_http_resolve "$(cat "$taskqueue_output")" 2>&1)
    else
        taskqueue_refused=refused-answer
        # The server keeps 10,000 characters, and the end of a long line says more than its beginning.
        taskqueue_last=$(tail -n 1 "$taskqueue_output" | tail -c 10000)
        taskqueue_problem=$(taskqueue_http_fail "exit:$taskqueue_status" "$taskqueue_last" 2>&1)
    fi
    case $taskqueue_problem in
        '') ;;
        # What was sent is not JSON, or too large. The next attempt would end the same way.
        input:* | 'proxy: HTTP status 413') taskqueue_http_fail "$taskqueue_refused" "$taskqueue_problem" false ;;
        *) printf '%s\n' "$taskqueue_problem" >&2 ;;
    esac
    rm -f "$taskqueue_output"
}

# PID: renews the lease until it is killed, and ends the process if the end of the run is requested or the run is lost.
taskqueue_http_beat() {
    taskqueue_pause=$((taskqueue_timeout / 3 < 15 ? taskqueue_timeout / 3 : 15))
    while sleep "$((taskqueue_pause > 0 ? taskqueue_pause : 1))"; do
        taskqueue_http_heartbeat ''
        case $? in 0 | 75) ;; *) kill -TERM "$1"; return ;; esac
    done
}

# TEXT: prints the text as JSON, with quotes; it may contain any characters.
taskqueue_http_text() {
    printf '%s.' "$1" | LC_ALL=C awk 'BEGIN { for (i = 1; i < 32; i++) as[sprintf("%c", i)] = sprintf("\\u%04x", i); as["\""] = "\\\""; as["\\"] = "\\\\" }
        { for (i = 1; i <= length($0); i++) { c = substr($0, i, 1); out = out ((c in as) ? as[c] : c) } out = out "\\n" }
        END { print "\"" substr(out, 1, length(out) - 3) "\"" }'
}
