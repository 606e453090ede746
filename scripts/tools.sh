#!/usr/bin/env bash
# Prints the paths of the tools with which charts are tested and installed, one per line, in the order of the arguments:
#
#   scripts/tools.sh [helm|helm-unittest|kubectl|promtool]...     (without arguments: all of them)
#
# Uses each from the PATH, or else from .tools/bin of this repository. Tools in neither are installed there: Go builds helm,
# helm-unittest and kubectl from their modules, at the versions below, and verifies them; promtool comes from the
# distribution's package `prometheus` (Debian, Ubuntu), which is unpacked, not installed, so this needs no privileges.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

HELM=v3.22.0
HELM_UNITTEST=v1.1.2 # made for Helm 3
KUBECTL=v1.36.3
tools=$PWD/.tools
bin=$tools/bin

need_go() {
    command -v go >/dev/null || die "there is no $1 on the PATH, and no go to build it with." \
        "Install $1 or Go 1.26, and run this again."
}

build() { CGO_ENABLED=0 go build -ldflags "-s -w" "$@"; }

get_helm() {
    need_go helm
    CGO_ENABLED=0 GOBIN=$new step "building helm $HELM" go install -ldflags "-s -w" "helm.sh/helm/v3/cmd/helm@$HELM"
}

# Built in the directory of its module: it has a replace directive, which `go install` rejects.
get_helm-unittest() {
    local module=github.com/helm-unittest/helm-unittest folder
    need_go helm-unittest
    go mod download "$module@$HELM_UNITTEST" >&2
    folder=$(go mod download -json "$module@$HELM_UNITTEST" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    (cd "$folder" && step "building helm-unittest $HELM_UNITTEST" build -o "$new/helm-unittest" ./cmd/helm-unittest)
}

# Built in a module created for it: Kubernetes keeps its own modules in its source tree, under version v0.0.0.
get_kubectl() {
    local module=k8s.io/kubernetes folder=$new/source staged mod
    need_go kubectl
    mkdir "$folder"
    (
        cd "$folder"
        go mod init kubectl
        mod=$(go mod download -json "$module@$KUBECTL" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
        for staged in $(sed -En 's/^\t(k8s\.io\/[^ ]+) v0\.0\.0( .*)?$/\1/p' "$mod"); do
            go mod edit -replace "$staged=$staged@v0${KUBECTL#v1}"
        done
        go get "$module/cmd/kubectl@$KUBECTL"
    ) >&2
    (cd "$folder" && step "building kubectl $KUBECTL" build -o "$new/kubectl" "$module/cmd/kubectl")
}

get_promtool() {
    local work
    command -v apt-get >/dev/null || die "there is no promtool on the PATH, and no apt-get to get it with." \
        "Install Prometheus and run this again."
    work=$(mktemp -d)
    # Its own package list: the system's may be missing, and only root can update it.
    mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
    local own=(-o "Dir::State::Lists=$work/lists" -o "Dir::Cache=$work/cache" -o "Debug::NoLocking=true" -o "APT::Sandbox::User=")
    step "looking for the package prometheus" apt "${own[@]}" update
    (cd "$work" && step "downloading it" apt "${own[@]}" download prometheus)
    dpkg-deb --fsys-tarfile "$work"/prometheus_*.deb | tar -xO ./usr/bin/promtool >"$new/promtool"
    chmod +x "$new/promtool"
    rm -rf "$work"
}

# get TOOL: if several scripts run at once, one builds it; it appears only when complete.
get() {
    mkdir -p "$bin"
    printf '*\n' >"$tools/.gitignore"
    lock "$tools/.lock"
    [ ! -x "$bin/$1" ] || return 0
    rm -rf "$tools"/new.*
    new=$(mktemp -d "$tools/new.XXXXXX")
    "get_$1"
    mv "$new/$1" "$bin/$1"
    rm -rf "$new"
}

[ $# -gt 0 ] || set -- helm helm-unittest kubectl promtool
for tool in "$@"; do
    case $tool in helm | helm-unittest | kubectl | promtool) ;; *) die "no such tool: $tool" ;; esac
    if ! command -v "$tool"; then
        if [ ! -x "$bin/$tool" ]; then get "$tool"; fi
        printf '%s\n' "$bin/$tool"
    fi
done
