#!/bin/sh
# Posts its standard input, a message of [notify] or the line of a hook, to a webhook:
#
#   argv = ["/usr/local/bin/webhook.sh", "https://hooks.example.org/taskqueue"]
#   argv = ["/usr/local/bin/webhook.sh", "https://hooks.example.org/taskqueue", "/etc/taskqueue/webhook.headers"]
#
# The second argument is a file with headers, one per line, such as "Authorization: Bearer …". Do not put a secret into the
# command line: every user of the host can read it. Exits with 0 if the answer is 2xx; a redirection is an error. Needs curl 7.55
# or newer.

url=${1:?usage: webhook.sh URL [FILE-WITH-HEADERS]}
headers=${2-/dev/null}

# The program of a hook must end within 30 seconds.
status=$(curl --disable --globoff --proto '=http,https' --silent --show-error --connect-timeout 10 --max-time 20 \
    --header 'Content-Type: application/json' --header "@$headers" --data-binary @- \
    --output /dev/null --write-out '%{http_code}' --url "$url") || exit
case $status in
    2??) ;;
    *)
        echo "the webhook answered $status" >&2
        exit 1
        ;;
esac
