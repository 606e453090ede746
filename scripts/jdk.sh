#!/usr/bin/env bash
# Prints the JAVA_HOME of a Java that Spark can run on: version 17 or newer, with the module jdk.incubator.vector.
#
# Uses the first of: $JAVA_HOME; java on the PATH; those under /usr/lib/jvm; the private copy under .jdk/. If there is none,
# it gets one from the distribution's packages (Debian, Ubuntu): as root by installing it, otherwise by unpacking the package
# into .jdk/, which needs no privileges.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

oldest=17
wanted=(17 21 25) # the first of these that the distribution has
copy=$PWD/.jdk

# probe JAVA: prints "VERSION HOME" of a suitable Java; otherwise fails.
probe() {
    local settings version home modules
    settings=$("$1" -XshowSettings:properties -version 2>&1 </dev/null) || return 1
    version=$(sed -n 's/^ *java\.specification\.version = //p' <<<"$settings")
    home=$(sed -n 's/^ *java\.home = //p' <<<"$settings")
    [[ $version =~ ^[0-9]+$ ]] && ((version >= oldest)) || return 1 # the versions before 9 call themselves 1.8 and the like
    modules=$("$home/bin/java" --list-modules 2>/dev/null </dev/null) || return 1
    [[ $modules == *jdk.incubator.vector@* ]] || return 1
    printf '%s %s\n' "$version" "$home"
}

# home_of JAVA: like probe, but prints only the home.
home_of() {
    local found
    found=$(probe "$1") || return 1
    printf '%s\n' "${found#* }"
}

# among FOLDER...: the home of the oldest suitable version, because Spark has supported it longest.
among() {
    local folder found=""
    found=$(for folder in "$@"; do
        [ -x "$folder/bin/java" ] && probe "$folder/bin/java" || true
    done | sort -n | head -n 1)
    [ -n "$found" ] || return 1
    printf '%s\n' "${found#* }"
}

installed() {
    if [ -n "${JAVA_HOME:-}" ]; then
        if home_of "$JAVA_HOME/bin/java"; then return; fi
        say "the Java of JAVA_HOME ($JAVA_HOME) is not used: Spark needs version $oldest or newer, with the module jdk.incubator.vector"
    fi
    if command -v java >/dev/null && home_of java; then return; fi
    among /usr/lib/jvm/* "$copy"/usr/lib/jvm/*
}

# first_package APT-CACHE...: the name of the first suitable package of the distribution.
first_package() {
    local version
    for version in "${wanted[@]}"; do
        if "$@" show "openjdk-$version-jre-headless" >/dev/null 2>&1; then
            echo "openjdk-$version-jre-headless"
            return
        fi
    done
    die "the distribution has no package openjdk-N-jre-headless for N = ${wanted[*]}." \
        "Install a Java $oldest or newer with the module jdk.incubator.vector, and set JAVA_HOME."
}

install_as_root() {
    local package
    step "looking for a Java among the distribution's packages" apt update
    package=$(first_package apt-cache)
    step "installing $package" apt install --no-install-recommends "$package"
}

# The libraries that the JVM itself needs (C, C++, zlib) exist wherever apt does, which needs them too; the package's other
# dependencies are for fonts, sound, printers and smart cards.
unpack_as_user() {
    local package work
    rm -rf "$copy".new.*
    work=$(mktemp -d "$copy.new.XXXXXX")
    # Its own package list: the system's may be missing (as in container images), and only root can update it.
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    local own=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o "Debug::NoLocking=true")
    step "looking for a Java among the distribution's packages" apt "${own[@]}" update
    package=$(first_package apt-cache "${own[@]}")
    (cd "$work" && step "downloading $package" apt "${own[@]}" download "$package")
    mkdir "$work/copy"
    step "unpacking $package into .jdk" unpack "$work"/*.deb "$work/copy"
    rm -rf "$copy"
    mv "$work/copy" "$copy" # at once, so that nothing takes half a Java for one
    rm -rf "$work"
}

# unpack DEB FOLDER: rewrites the package's absolute links to its own files (the settings under /etc) to .jdk, the final
# location of the directory.
unpack() {
    local link target
    dpkg-deb -x "$1" "$2"
    find "$2" -type l -lname '/*' -print0 | while IFS= read -r -d '' link; do
        target=$(readlink "$link")
        if [ -e "$2$target" ]; then ln -sfn "$copy$target" "$link"; fi
    done
}

if installed; then exit; fi
command -v apt-get >/dev/null || die "Spark needs a Java, version $oldest or newer, with the module jdk.incubator.vector." \
    "None was found, and there is no apt-get to get one with: install one and set JAVA_HOME."
say "no Java that Spark can run on was found"
lock .jdk.lock
if installed; then exit; fi
if is_root; then
    install_as_root
    home=$(among /usr/lib/jvm/*) || die "the Java that was installed does not start, or lacks the module jdk.incubator.vector."
else
    unpack_as_user
    home=$(among "$copy"/usr/lib/jvm/*) || die "the Java under $copy does not start, or lacks the module jdk.incubator.vector."
fi
say "Java is in $home"
printf '%s\n' "$home"
