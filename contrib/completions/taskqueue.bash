# shellcheck shell=bash
# What bash offers on a command line of taskqueue: it asks the program itself, so that it knows the tasks and classes of the store.
# `taskqueue completions bash` prints this file; docs/shell.md says where it goes.

_taskqueue() {
    # The very program that was typed, where it is one; an alias or a function is not.
    local program=${1/#\~\//$HOME/}
    type -P "$program" >/dev/null || program=taskqueue
    mapfile -t COMPREPLY < <(
        TASKQUEUE_COMPLETE=bash command "$program" -- "${COMP_LINE:0:COMP_POINT}" "$2" "${COMP_TYPE:-9}" "${COLUMNS:-80}" 2>/dev/null
    )
    # More is to follow behind these, without a space.
    [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *[=/] ]] || compopt -o nospace 2>/dev/null
}

complete -o nosort -F _taskqueue taskqueue
