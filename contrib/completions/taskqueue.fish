# What fish offers on a command line of taskqueue: it asks the program itself, so that it knows the tasks and classes of the store.
# `taskqueue completions fish` prints this file; docs/shell.md says where it goes.

function __fish_taskqueue
    set -l words (commandline --current-process --tokenize --cut-at-cursor)
    # The very program that was typed, where it is one.
    set -l program (string replace -r '^~/' "$HOME/" -- "$words[1]")
    command -q "$program"; or set program taskqueue
    TASKQUEUE_COMPLETE=fish command $program -- $words (commandline --current-token --cut-at-cursor) 2>/dev/null
end

complete --command taskqueue --no-files --keep-order --arguments '(__fish_taskqueue)'
