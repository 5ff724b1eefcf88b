#!/bin/sh
# Queues a task from a shell script: the program does it, and prints the id.
# Usage: queue.sh CLASS JSON
set -eu

id=$(taskqueue queue "$1" "$2")
echo "queued task $id"
