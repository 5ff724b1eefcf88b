# shellcheck shell=bash
# Sourced by the scripts beside it: where the benchmark keeps what it installs, builds and measures.

tests=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../../tests")

# As root the servers run as another user, to whom /root is closed.
if [[ -z ${TASKQUEUE_BENCH_HOME:-} && $EUID -eq 0 ]]; then
    bench_home=/var/tmp/taskqueue-bench
else
    bench_home=$(realpath -m "${TASKQUEUE_BENCH_HOME:-${XDG_CACHE_HOME:-${HOME:?}/.cache}/taskqueue-bench}")
fi

# A folder of its own: a build for the tests at the same time would wait for ours, or ours for it.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$bench_home/target}

# shellcheck source=tests/common.sh
. "$tests/common.sh"

mkdir -p "$bench_home"
# Anybody may have made a folder of this name in /var/tmp before us.
[[ -O $bench_home || -n ${TASKQUEUE_BENCH_HOME:-} ]] ||
    die "$bench_home belongs to another user; set TASKQUEUE_BENCH_HOME"
export TASKQUEUE_BENCH_HOME=$bench_home
