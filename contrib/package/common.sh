# shellcheck shell=bash
# Sourced by the scripts beside it.

set -euo pipefail
shopt -s inherit_errexit
# The order of sorted names must not depend on the language of whoever packs, nor their modes on his umask.
export LC_ALL=C
umask 022

# A CI shell may not know of rustup.
PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin

say() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
}

die() {
    say "$@"
    exit 1
}

root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
# shellcheck disable=SC2034 # for those who source this
default_target=${CARGO_TARGET_DIR:-$root/target}/package

# The one moment that stands in everything that is made: that of the commit.
find_epoch() {
    [[ -z ${SOURCE_DATE_EPOCH-} ]] || return 0
    SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct 2>/dev/null) ||
        die "no commit to take the time from; set SOURCE_DATE_EPOCH"
    export SOURCE_DATE_EPOCH
}

# An option at the end of the line lacks its value.
needs_value() {
    [[ $# -ge 2 && -n $2 ]] || die "$1 needs a value"
}

# A start costs little: the dynamic linker has hardly anything to do for this program.
check_start() {
    local library count
    for library in $(needed_libraries "$1"); do
        case $library in
            libc.so.6 | libm.so.6 | ld-linux*) ;;
            *) die "$1 needs $library of the machine; it should have it inside" ;;
        esac
    done
    count=$(readelf --relocs --wide "$1" | grep -c '^[0-9a-f]\{16\} ') || true
    [[ $count -lt 2000 ]] || die "$1 has $count relocations; a program at fixed addresses has some hundred"
}

# The libraries that a program asks the machine for.
needed_libraries() {
    objdump -p "$1" | awk '$1 == "NEEDED" { print $2 }'
}
