#!/usr/bin/env bash
# Writes the locks under requirements/ from pyproject.toml, for all platforms and Python versions, with the hashes of the
# published files. Keeps locked versions that still fit; UPGRADE=1 updates to the newest ones.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

uv_version=0.13.9

# Local wheel directories would put hashes and paths of this machine into the locks.
unset PIP_FIND_LINKS UV_FIND_LINKS

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
make_uv() {
    "${PYTHON:-python3}" -m venv "$work/uv"
    "$work/uv/bin/python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"
}

# compile NAME ARGUMENT...: writes requirements/NAME.lock.
compile() {
    local name=$1
    shift
    "$work/uv/bin/uv" --no-config pip compile --quiet --universal --python-version 3.11 --generate-hashes \
        --no-header --no-emit-index-url --no-emit-find-links ${UPGRADE:+--upgrade} \
        --output-file "requirements/$name.lock" "$@"
}

step "getting uv $uv_version" make_uv
mkdir -p requirements
step "locking the build tools" compile build --group build
step "locking the packages" compile dev --extra dev pyproject.toml
# The packages of the images: the same versions, and only what they need.
step "locking what the Spark image holds" compile spark --constraint requirements/dev.lock pyproject.toml
step "locking what the operator's image holds" compile operator --constraint requirements/dev.lock --group operator-image
step "locking what the services' image holds" compile services --constraint requirements/dev.lock --group services-image
if grep -nE '://|^-' requirements/*.lock; then die "a lock contains a path of this machine or a registry"; fi
