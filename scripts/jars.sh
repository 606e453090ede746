#!/usr/bin/env bash
# Prints the folder .jars of this repository, after filling it with the Java archives of requirements/jars.pom.xml:
#
#   .jars/kafka      a Kafka broker, for developers and tests
#   .jars/zookeeper  a ZooKeeper server, for the image of development services
#
# Maven fetches them, from its configured repositories, and verifies them. Does nothing while the pom and the fetched files are
# unchanged; `scripts/jars.sh check` reports that by its status. If several run at once, one fetches and the others wait. If
# Maven is missing, it is installed from the distribution's packages (Debian, Ubuntu; as root).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

pom=requirements/jars.pom.xml
jars=$PWD/.jars
profiles=(kafka zookeeper)

install_maven() {
    if ! is_root || ! command -v apt-get >/dev/null; then
        die "Maven is needed to fetch Kafka's jars, and there is no mvn on the PATH." \
            "Install it (Debian, Ubuntu: sudo apt-get install maven) and run make again."
    fi
    step "looking for Maven among the distribution's packages" apt update
    step "installing maven" apt install --no-install-recommends maven
}

# fetch PROFILE FOLDER
fetch() {
    mvn --batch-mode --no-transfer-progress --strict-checksums --file "$pom" --activate-profiles "$1" \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$2"
}

# Names and sizes of the files, without hidden ones: the lock, and directories that are being filled.
contents() { (cd "$1" && find "${profiles[@]}" -type f -printf '%p %s\n' | sort); }

complete() {
    cmp --silent "$pom" "$jars/pom.xml" && contents "$jars" 2>/dev/null | cmp --silent - "$jars/contents"
}

done_already() {
    printf '%s\n' "$jars"
    exit
}

if [ "${1:-}" = check ]; then
    complete && exit
    exit 1
fi
if complete; then done_already; fi
lock "$jars/.lock"
if complete; then done_already; fi
command -v mvn >/dev/null || install_maven
if [ -z "${JAVA_HOME:-}" ] && [ -e .venv/java_home ]; then
    JAVA_HOME=$(cat .venv/java_home)
    export JAVA_HOME
fi
printf '*\n' >"$jars/.gitignore"
rm -rf "$jars"/.new.* "$jars/pom.xml"
new=$(mktemp -d "$jars/.new.XXXXXX") # of this script alone: a Maven whose script was killed may still be writing to another
trap 'rm -rf "$new"' EXIT
for profile in "${profiles[@]}"; do
    step "fetching the jars of $pom: $profile" fetch "$profile" "$new/$profile"
    [ -n "$(find "$new/$profile" -name '*.jar' -print -quit)" ] || die "Maven succeeded, but fetched no jars for $profile"
done
contents "$new" >"$new/contents"
cp "$pom" "$new/pom.xml"
for profile in "${profiles[@]}"; do
    rm -rf "${jars:?}/$profile"
    mv "$new/$profile" "$jars/$profile"
done
mv "$new/contents" "$jars/contents"
mv "$new/pom.xml" "$jars/pom.xml" # last: it says that all is there
printf '%s\n' "$jars"
