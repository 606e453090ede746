# Functions that the scripts of this folder share; to be sourced. All messages go to standard error.

say() { printf '==> %s\n' "$*" >&2; }

die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# lock FILE: waits until no other script holds this lock; this one holds it until it ends, in whatever way.
lock() {
    mkdir -p "$(dirname "$1")"
    exec 9>"$1"
    if ! flock --nonblock 9; then
        say "another one is at it; waiting for it (lock: $1)"
        flock 9
    fi
}

# last_line FILE: what a command has said last, so much of it as fits into a line; whole characters, and no others than can
# be seen.
last_line() {
    local LC_ALL=C.UTF-8 line
    line=$(tail -n 1 "$1" | tr '\r' '\n' | tail -n 1 | sed 's/\x1b\[[0-9;?]*[A-Za-z]//g' | tr -d '\000-\037')
    printf '%s' "${line:0:100}"
}

# step MESSAGE COMMAND...: runs a command that may take long. Says so, shows every half minute that it still runs, with the
# last line of its output where that is another one than before, and shows the rest of that only if it fails.
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

# apt COMMAND...: apt-get that asks nothing and waits for another one to finish.
apt() { DEBIAN_FRONTEND=noninteractive apt-get -y -q -o DPkg::Lock::Timeout=120 "$@"; }
