# Functions shared by the scripts of this directory; to be sourced. All messages go to standard error.

say() { printf '==> %s\n' "$*" >&2; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# lock FILE: acquires a lock, waiting while another script holds it; it is released when this script ends, in any way.
lock() {
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    if ! flock --nonblock 9; then
        say "another one is at it; waiting for it (lock: $1)"
        flock 9
    fi
}

# last_line FILE: the last output of a command, truncated to one line; only whole, printable characters.
last_line() {
    local LC_ALL=C.UTF-8 line
    line=$(tail -n 1 "$1" | tr '\r' '\n' | tail -n 1 | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' | tr -d '\000-\037')
    printf '%s' "${line:0:100}"
}

# step MESSAGE COMMAND...: runs a command that may take long. Prints the message, reports every half minute that the command
# is still running, with the last line of its output if that has changed, and prints the whole output only if it fails.
step() {
    local message=$1 log beat status=0 began=$SECONDS
    shift
    log=$(mktemp)
    say "$message"
    (
        told=
        while sleep "${BEAT:-30}" </dev/null >/dev/null 2>&1 && kill -0 "$$" 2>/dev/null; do
            line=$(last_line "$log")
            [ "$line" != "$told" ] && said=": $line" || said=
            printf '    ... still at it, %d s%s\n' $((SECONDS - began)) "$said" >&2
            told=$line
        done
    ) 9>&- & # no child keeps a lock that its script held
    beat=$!
    "$@" </dev/null >"$log" 2>&1 9>&- || status=$?
    kill -KILL "$beat" 2>/dev/null || true # not TERM: one that has only just begun would run the script's own EXIT trap
    wait "$beat" 2>/dev/null || true
    if ((status != 0)); then
        tail -n 60 "$log" >&2
        printf 'error: failed with status %d: %s\n' "$status" "$*" >&2
    fi
    rm -f "$log"
    return "$status"
}

is_root() { [ "$(id -u)" = 0 ]; }

# apt COMMAND...: non-interactive apt-get that waits for another one to finish.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=120 "$@"; }
