#!/usr/bin/env bash
# Fetches the third-party packages of the gateway's console, listed in requirements/console.lock, and verifies their hashes.
#
#   jobs/src/spatialstream/gateway/console/vendor   the library of the map, the land and its borders; goes into the package
#   tests/browser/vendor                            libraries with which tests examine the pages
#
# npm fetches them, from its configured registry. Does nothing while the lock is unchanged. If several run at once, one
# fetches and the others wait. If npm is missing, it is installed from the distribution's packages (Debian, Ubuntu; as root).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

lock=requirements/console.lock
pages=jobs/src/spatialstream/gateway/console/vendor
tests=tests/browser/vendor

complete() {
    cmp --silent "$lock" "$pages/console.lock" && cmp --silent "$lock" "$tests/console.lock" &&
        [ "$pages/console.lock" -nt scripts/console.sh ]
}

install_npm() {
    if ! is_root || ! command -v apt-get >/dev/null; then
        die "npm is needed to fetch the packages of the console, and there is none on the PATH." \
            "Install it (Debian, Ubuntu: sudo apt-get install npm) and run make again."
    fi
    step "looking for npm among the distribution's packages" apt update
    step "installing npm" apt install --no-install-recommends npm
}

# fetch NAME VERSION INTEGRITY: into $new/NAME.
fetch() {
    local name=$1 version=$2 integrity=$3 archive=$new/$1-$2.tgz found
    step "fetching $name $version" npm pack --silent --pack-destination "$new" "$name@$version"
    found=sha512-$(openssl dgst -sha512 -binary "$archive" | base64 --wrap=0)
    [ "$found" = "$integrity" ] || die "$name $version is not what $lock says: it has $found"
    mkdir "$new/$name"
    tar --extract --gzip --file "$archive" --directory "$new/$name" --strip-components=1
}

# put FOLDER: replaces FOLDER by $new/FOLDER; the lock comes last and marks it as complete.
put() {
    rm -rf "$1"
    mkdir -p "$1"
    printf '*\n' >"$1/.gitignore"
    cp -R "$new/$1/." "$1"
    cp "$lock" "$1/console.lock"
}

complete && exit
lock .console.lock
complete && exit
command -v npm >/dev/null || install_npm
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
while read -r name version integrity; do
    fetch "$name" "$version" "$integrity"
done < <(grep -v '^#' "$lock")

mkdir -p "$new/$pages" "$new/$tests"
cp "$new"/maplibre-gl/dist/maplibre-gl{,-worker}.mjs "$new/maplibre-gl/dist/maplibre-gl.css" "$new/$pages"
sed -i '/^\/\/# sourceMappingURL=/d' "$new/$pages"/*.mjs # their maps are not here
cp "$new/maplibre-gl/LICENSE.txt" "$new/$pages/maplibre-gl.LICENSE"
cp "$new/world-atlas/countries-50m.json" "$new/$pages"
cp "$new/world-atlas/LICENSE" "$new/$pages/world-atlas.LICENSE"
cp -R "$new/topojson-client/src" "$new/$pages/topojson-client"
cp "$new/topojson-client/LICENSE" "$new/$pages/topojson-client.LICENSE"
cp "$new"/axe-core/{axe.min.js,LICENSE} "$new/$tests"
put "$tests"
put "$pages"
