#!/usr/bin/env bash
# Builds the environment of one peer, or of all, from pinned requirements:
#   benchmarks/peers/build.sh opacus|jax-privacy|tf-privacy|all [directory]
# Each goes to <directory>/<peer>; the default directory is benchmarks/peers/.venvs. Needs Python 3.11 (PYTHON=... names
# another interpreter of that version: TensorFlow 2.15, which TensorFlow Privacy needs, is not built for later ones).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
peers=(opacus jax-privacy tf-privacy)
python=${PYTHON:-python3.11}

usage() {
  sed -n '2,5s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit "$1"
}

build() {
  local peer=$1 target=$directory/$1
  "$python" -m venv --clear "$target"
  # The files name every package that is installed; what the packages say they depend on is not asked, because
  # TensorFlow Privacy pins versions that can't be had together any more.
  "$target/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$here/requirements/$peer.txt"
  if [ "$peer" = opacus ]; then
    # Nothing more where pip finds PyTorch's build for CPUs; a build for GPUs brings its libraries along. PIP_EXTRA_INDEX_URL
    # may name an index of CPU builds.
    "$target/bin/pip" install --quiet --disable-pip-version-check -c "$here/requirements/$peer.txt" torch
  fi
  echo "$peer: $target/bin/python -m benchmarks.peers.run_${peer//-/_} --help"
}

case ${1:-} in
  -h | --help) usage 0 ;;
  opacus | jax-privacy | tf-privacy) chosen=("$1") ;;
  all) chosen=("${peers[@]}") ;;
  *) usage 1 >&2 ;;
esac
mkdir -p "${2:-$here/.venvs}"
directory=$(cd "${2:-$here/.venvs}" && pwd)
for peer in "${chosen[@]}"; do
  build "$peer"
done
