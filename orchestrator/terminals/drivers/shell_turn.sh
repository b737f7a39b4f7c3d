# How an interactive shell of the `shell` driver carries out a task. POSIX; read by the shell at its start, from
# a file written for its terminal that sets changeover_folder, changeover_spool and changeover_mark.
#
# `changeover_run N` runs tasks/N.task once: standard input stays the terminal, what it prints goes to the screen
# and to tasks/N.out, its status to tasks/N.status. It reports `submitted` at the start and `stopped` at the end.

changeover_report() { # EVENT JSON
    /bin/sh "$changeover_spool" "$1" <<CHANGEOVER_JSON
$2
CHANGEOVER_JSON
}

changeover_run() {
    changeover_turn "$1"
    # Begun and without a status: the turn itself was killed. Whoever waits must learn that it is over.
    if [ -f "$changeover_folder/tasks/$1.out" ] && [ ! -f "$changeover_folder/tasks/$1.status" ]; then
        changeover_stopped "$1" 137 "$(wc -c <"$changeover_folder/tasks/$1.out")"
    fi
}

changeover_stopped() { # NUMBER STATUS SIZE
    echo "$2" >"$changeover_folder/tasks/$1.status"
    changeover_report stopped \
        "{\"turn\": \"$1\", \"exit_status\": $2, \"output_file\": \"tasks/$1.out\", \"size\": $(($3))}"
}

# The output goes through a pipe and not straight into the file, because a task that writes to /dev/stderr would
# truncate a file. A pipe has no end while a process left behind by the task holds it, so the end of the turn is a
# mark written into it: grep tells where it came, which is the size of the output, and has seen it only once tee
# has written all that came before. tee lives on for the processes left behind; what they print later lands in
# the file after the turn's own output. On the screen the mark is an escape sequence that shows nothing.
changeover_turn() (
    changeover_number=$1
    changeover_task=$changeover_folder/tasks/$1
    set --
    if [ ! -f "$changeover_task.task" ] || [ -e "$changeover_task.out" ]; then
        echo "Task $changeover_number does not exist or was run before." >&2
        exit 2
    fi
    mkfifo "$changeover_task.pipe" "$changeover_task.seen" || exit 2
    : >"$changeover_task.out"
    changeover_report submitted "{\"turn\": \"$changeover_number\"}"

    trap '' INT QUIT # an interrupt key ends the task, not what carries its output
    (
        trap '' PIPE # grep leaves first
        exec tee -a "$changeover_task.out" "$changeover_task.seen" <"$changeover_task.pipe" 2>/dev/null
    ) &
    LC_ALL=C grep -a -b -o -m 1 -F "$changeover_mark" <"$changeover_task.seen" >"$changeover_task.size" &
    changeover_waiter=$!
    exec 9>"$changeover_task.pipe"
    trap : INT QUIT # in the task's own subshell this is back to the default
    (. "$changeover_task.task") >&9 2>&1 9>&-
    changeover_status=$?

    trap '' INT QUIT
    printf '\033]7770;%s\007\n' "$changeover_mark" >&9
    exec 9>&-
    wait "$changeover_waiter"
    if IFS=: read -r changeover_size changeover_rest <"$changeover_task.size"; then
        changeover_size=$((changeover_size - 7)) # the escape sequence begins before the mark
        truncate -s "$changeover_size" "$changeover_task.out"
    else
        changeover_size=$(wc -c <"$changeover_task.out") # the task killed tee or grep
    fi
    rm -f "$changeover_task.pipe" "$changeover_task.seen" "$changeover_task.size"
    changeover_stopped "$changeover_number" "$changeover_status" "$changeover_size"
)

unset HISTFILE
HISTCONTROL=ignorespace
PS1='❯ '
changeover_report ready '{}'
