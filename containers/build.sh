#!/bin/sh
# The image on a base that is made from Debian's own packages: for machines that reach no registry of images.
# Needs podman and mmdebstrap, and root (or user namespaces).
#   containers/build.sh [TAG] [OPTIONS OF podman build ...]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
tag=${1:-covey:0.2.0}
[ $# -gt 0 ] && shift
base=localhost/covey-base:bookworm
if ! podman image exists "$base"; then
    mmdebstrap --variant=minbase --include=python3-venv,ca-certificates \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' bookworm - |
        podman import --change 'CMD ["python3"]' - "$base"
fi
# Limits that every machine can grant: podman's own are higher than some may set.
podman build --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 --format docker --file "$here/containers/Containerfile" --build-arg BASE="$base" --tag "$tag" "$@" "$here"
