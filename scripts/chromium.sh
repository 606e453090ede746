#!/usr/bin/env bash
# Prints the path of a Chromium, for the tests of the console. If there is none, it is installed from the distribution's
# packages (Debian, Ubuntu; as root), with a font, without which pages show no text.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

find_chromium() {
    local name
    [ -z "${CHROMIUM:-}" ] || { command -v "$CHROMIUM" && return; }
    for name in chromium chromium-browser google-chrome-stable google-chrome; do
        command -v "$name" && return
    done
}

find_chromium && exit
if ! is_root || ! command -v apt-get >/dev/null; then
    die "Chromium is needed for the tests of the console, and there is none on the PATH." \
        "Install it (Debian, Ubuntu: sudo apt-get install chromium), or name it: CHROMIUM=/path/to/chromium make test-browser"
fi
step "looking for Chromium among the distribution's packages" apt update
step "installing chromium" apt install --no-install-recommends chromium fonts-dejavu-core
find_chromium || die "chromium has been installed, but is not on the PATH"
