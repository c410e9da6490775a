#!/usr/bin/env bash
# From a fresh checkout to a served model: installs what is missing, builds, asks the shipped model to go on with a sentence, then keeps serving
# an OpenAI-compatible API on port 8000 until Ctrl-C.
#
#   scripts/quickstart.sh [--once]     --once: answer, stop, exit
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/packages.sh
source scripts/build.sh

once=()
case "${1:-}" in
  "") ;;
  --once) once=(--once) ;;
  *)
    echo "usage: scripts/quickstart.sh [--once]" >&2
    exit 2
    ;;
esac

install_packages "${BUILD_PACKAGES[@]}"
if [ ! -x build/release/bin/lamina ]; then
  echo "Building lamina into build/release; the first time takes some minutes"
fi
build release lamina lamina-memory-node lamina-compute-node
exec build/release/bin/lamina serve models/tiny-stories --memory-nodes 2 --prompt "Once upon a time" "${once[@]}"
