#!/bin/sh
# Queues a task from a shell script with the program, and prints the id.
# Usage: queue.sh CLASS JSON
set -eu

# shellcheck source=contrib/queue/taskqueue-queue.sh
. "$(dirname "$0")/taskqueue-queue.sh"

if [ $# -ne 2 ]; then
    echo "usage: queue.sh CLASS JSON" >&2
    exit 2
fi
id=$(taskqueue_queue "$1" "$2")
echo "queued task $id"
