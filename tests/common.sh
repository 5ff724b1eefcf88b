# shellcheck shell=bash
# Sourced by the scripts beside it: where they keep things and how they speak.

# Debian keeps servers where only root's PATH looks, and a CI shell may not know of rustup.
PATH=$PATH:/usr/sbin:/sbin:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

# The servers' own user must be able to pass through every folder that is made here.
umask 022

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() {
    say "$@"
    exit 1
}

is_root() {
    [[ $EUID -eq 0 ]]
}

# As root the servers run as another user, to whom /root is closed.
default_home() {
    if is_root; then
        echo /var/tmp/taskqueue-tests
    else
        echo "${XDG_CACHE_HOME:-${HOME:?}/.cache}/taskqueue-tests"
    fi
}

# What `postgres` in PATH means differs from machine to machine; Debian keeps every version in a folder of its own.
postgres_bin() {
    local found
    found=$(printf '%s\n' /usr/lib/postgresql/*/bin/initdb | sort -V | tail -n 1)
    [[ -x $found ]] || found=$(command -v initdb) || return 1
    dirname "$found"
}

home=$(realpath -m "${TASKQUEUE_TEST_HOME:-$(default_home)}")
# shellcheck disable=SC2034 # for those who source this
mysql_root=$(realpath -m "${TASKQUEUE_TEST_MYSQL_ROOT:-$home/mysql-root}")

# shellcheck disable=SC2034
galera_library=/usr/lib/galera/libgalera_smm.so

axe_version=4.14.1
# shellcheck disable=SC2034
axe=$home/axe-core-$axe_version.js

# Clones share what they build: the database clients, in C and C++, take minutes.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$home/target}

mkdir -p "$home"
# Anybody may have made a folder of this name in /var/tmp before us.
[[ -O $home || -n ${TASKQUEUE_TEST_HOME:-} ]] || die "$home belongs to another user; set TASKQUEUE_TEST_HOME"
