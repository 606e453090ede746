#!/usr/bin/env bash
# Prints the folder .peers of this repository, after filling it with the Java archives of requirements/peers.pom.xml,
# which `make bench-peers` needs. Maven fetches and verifies them. Does nothing while the pom is unchanged.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

pom=requirements/peers.pom.xml
peers=$PWD/.peers

lock "$peers/.lock"
if ! cmp --silent "$pom" "$peers/pom.xml"; then
    command -v mvn >/dev/null || die "Maven is needed to fetch Lucene, and there is no mvn on the PATH." \
        "Install it (Debian, Ubuntu: sudo apt-get install maven) and run make again."
    printf '*\n' >"$peers/.gitignore"
    rm -rf "$peers/lucene" "$peers/pom.xml"
    step "fetching the jars of $pom" mvn --batch-mode --no-transfer-progress --strict-checksums --file "$pom" \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$peers/lucene"
    cp "$pom" "$peers/pom.xml" # last: it says that all is there
fi
printf '%s\n' "$peers"
