#!/usr/bin/env bash
# Sets up the project's Python environment .venv in parts; the Makefile runs them when their prerequisites have changed.
#
#   scripts/venv.sh check      invalidates parts that no longer work (Python, the JDK or jars gone, directory moved)
#   scripts/venv.sh packages   creates .venv and installs the locked packages, with verified hashes
#   scripts/venv.sh project    installs the project itself in editable mode
#
# If several run at once, one works and the others wait. Interrupted work is repeated from the beginning.
#
# $PYTHON names the Python to use, then no other one is tried; by default the first of python3, python3.11 .. python3.14 that
# is new enough.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

venv=.venv

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' </dev/null >/dev/null 2>&1; }
makes_venvs() { "$1" -c 'import ensurepip, venv' </dev/null >/dev/null 2>&1; }

# Prints a Python that can create the environment.
find_python() {
    local candidate candidates=(python3 python3.11 python3.12 python3.13 python3.14) found=() seen=()
    [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        if new_enough "$candidate"; then
            found+=("$candidate")
            if makes_venvs "$candidate"; then
                echo "$candidate"
                return
            fi
        else
            seen+=("$candidate ($("$candidate" --version 2>/dev/null </dev/null || echo 'does not start'))")
        fi
    done
    if ((${#found[@]} == 0)) && [ -n "${PYTHON:-}" ]; then
        die "PYTHON=$PYTHON cannot be used: ${seen[0]:-there is no such program}. Python 3.11 or newer is needed; name one, or none."
    elif ((${#found[@]} == 0)); then
        die "Python 3.11 or newer is needed, and none is on the PATH${seen:+ (seen: ${seen[*]})}." \
            "Install one (Debian, Ubuntu: apt-get install python3 python3-venv) or name it: make PYTHON=/path/to/python3.11"
    fi
    install_venv_module "${found[0]}"
    makes_venvs "${found[0]}" || die "${found[0]} still cannot make virtual environments: its modules venv and ensurepip are missing."
    echo "${found[0]}"
}

# Debian and Ubuntu ship Python without the module ensurepip, in a package of its own.
install_venv_module() {
    local package
    package=$("$1" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    if is_root && command -v apt-get >/dev/null; then
        step "installing $package: $1 cannot make virtual environments without it" install_package "$package"
    else
        die "$1 cannot make virtual environments: its module ensurepip is missing." \
            "Install it (Debian, Ubuntu: sudo apt-get install $package) and run make again."
    fi
}

install_package() {
    apt update
    apt install --no-install-recommends "$1"
}

pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check --no-input "$@"
}

# install MESSAGE ARGUMENT...: pip install, which rolls back if it fails, but not if it is killed.
install() {
    local message=$1 status=0
    shift
    touch "$venv/.begun"
    step "$message" pip install "$@" || status=$?
    ((status >= 128)) || rm -f "$venv/.begun"
    return "$status"
}

# Whether another script installed the packages while this one was waiting.
up_to_date() {
    [ "$(cat "$venv/.packages" 2>/dev/null)" = "$(pwd)" ] && ! [ -e "$venv/.moved" ] && ! [ -e "$venv/.begun" ] &&
        [ "$venv/.packages" -nt requirements/build.lock ] && [ "$venv/.packages" -nt requirements/dev.lock ]
}

packages() {
    local python
    lock .venv.lock
    if up_to_date; then return; fi
    rm -f "$venv/.packages"
    if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1 || [ -e "$venv/.moved" ] || [ -e "$venv/.begun" ]; then
        python=$(find_python)
        step "making $venv with $("$python" --version)" "$python" -m venv --clear "$venv"
    fi
    # The build tools come first, and builds are not isolated, so that nothing outside the locks is fetched.
    install "installing the locked build tools" --require-hashes -r requirements/build.lock
    install "installing the locked packages (pyspark alone is 450 MB: some minutes the first time)" \
        --require-hashes --no-build-isolation -r requirements/dev.lock
    pwd >"$venv/.packages"
}

project() {
    lock .venv.lock
    install "installing spatialstream into $venv" --no-deps --no-build-isolation --editable .
    touch "$venv/.project"
}

check() {
    [ -e "$venv" ] || return 0
    if [ -e "$venv/.packages" ] && [ "$(cat "$venv/.packages")" != "$(pwd)" ]; then
        touch "$venv/.moved" # its scripts name the folder in which they were made
    fi
    if [ -e "$venv/.moved" ] || ! [ -x "$venv/bin/python" ]; then
        rm -f "$venv/.packages" "$venv/.project"
    fi
    if [ -e "$venv/java_home" ] && ! [ -x "$(cat "$venv/java_home")/bin/java" ]; then
        rm -f "$venv/java_home"
    fi
    if [ -e "$venv/.jars" ] && ! scripts/jars.sh check; then
        rm -f "$venv/.jars"
    fi
}

case ${1:-} in
    check | packages | project) "$1" ;;
    *) die "usage: scripts/venv.sh check|packages|project" ;;
esac
