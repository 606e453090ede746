#!/usr/bin/env bash
# Prints the folder .jars of this repository, after filling it with the Java archives of requirements/jars.pom.xml:
#
#   .jars/spark      Spark's Kafka connector, for the class path of a Spark application
#   .jars/kafka      a Kafka broker, for developers and tests
#   .jars/zookeeper  a ZooKeeper server, for the image of development services
#
# Maven fetches them, from wherever it is set up to, and checks them. As long as the pom is the same, nothing is done.
# Without a Maven, it is installed from the distribution's packages (Debian, Ubuntu; as root).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

pom=requirements/jars.pom.xml
jars=$PWD/.jars
profiles=(spark kafka zookeeper)

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

if cmp --silent "$pom" "$jars/pom.xml"; then
    printf '%s\n' "$jars"
    exit
fi
command -v mvn >/dev/null || install_maven
if [ -z "${JAVA_HOME:-}" ] && [ -e .venv/java_home ]; then
    JAVA_HOME=$(cat .venv/java_home)
    export JAVA_HOME
fi
mkdir -p "$jars"
printf '*\n' >"$jars/.gitignore"
rm -rf "$jars/new" "$jars/pom.xml"
for profile in "${profiles[@]}"; do
    step "fetching the jars of $pom: $profile" fetch "$profile" "$jars/new/$profile"
done
for profile in "${profiles[@]}"; do
    rm -rf "${jars:?}/$profile"
    mv "$jars/new/$profile" "$jars/$profile"
done
rmdir "$jars/new"
cp "$pom" "$jars/pom.xml" # last: it says that all is there
printf '%s\n' "$jars"
