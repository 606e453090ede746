#!/usr/bin/env bash
# Builds the images of this repository, named NAME:VERSION: spatialstream-spark, spatialstream-operator and, for development,
# spatialstream-services. Arguments are the names without the prefix (all if there are none).
#
# IMAGE_COMMAND builds an image and makes it available to the cluster: a shell command in which {tag}, {file} and {context}
# are replaced. By default docker, podman or buildah, whichever is installed, only builds the image. For kind:
#
#   IMAGE_COMMAND='docker build --tag {tag} --file {file} {context} && kind load docker-image {tag}' make images
#
# IMAGE_PREFIX is prepended to the names, such as a registry and repository path with a trailing slash.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
names=("$@")
((${#names[@]})) || names=(operator spark services)

default_command() {
    local tool
    for tool in docker podman; do
        if command -v "$tool" >/dev/null; then
            echo "$tool build --tag {tag} --file {file} {context}"
            return
        fi
    done
    command -v buildah >/dev/null || die "docker, podman or buildah is needed to build images; or set IMAGE_COMMAND."
    echo "buildah bud --layers --tag {tag} --file {file} {context}"
}

command=${IMAGE_COMMAND:-$(default_command)}
scripts/jars.sh >/dev/null
scripts/console.sh
for name in "${names[@]}"; do
    tag=${IMAGE_PREFIX:-}spatialstream-$name:$version file=images/$name/Dockerfile
    [ -e "$file" ] || die "there is no image $name; there are: $(cd images && echo *)"
    line=${command//\{tag\}/$tag}
    line=${line//\{file\}/$file}
    line=${line//\{context\}/.}
    step "building $tag" bash -euo pipefail -c "$line"
done
