#!/usr/bin/env bash
# From a fresh checkout to a served model: installs what is missing, builds, asks the shipped model to go on with a sentence, then
# keeps serving an OpenAI-compatible API until Ctrl-C.
#
#   scripts/quickstart.sh [--port PORT] [--once]
#     --port PORT   where to serve, 8000 unless told
#     --once        answer, stop, exit
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/packages.sh
source scripts/build.sh

usage() {
  echo "usage: scripts/quickstart.sh [--port PORT] [--once]" >&2
  exit 2
}

port=8000
more=()
while [ $# -gt 0 ]; do
  case "$1" in
    --once) more+=(--once) ;;
    --port)
      [[ ${2:-} =~ ^[0-9]+$ ]] && [ "$2" -ge 1 ] && [ "$2" -le 65535 ] || usage
      port=$2
      shift
      ;;
    *) usage ;;
  esac
  shift
done

# Said before the build and not after it: the minutes would be for nothing.
if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
  echo "Something listens on port $port already. Give another one: scripts/quickstart.sh --port $((port < 65535 ? port + 1 : 8000))" >&2
  exit 1
fi

install_packages "${BUILD_PACKAGES[@]}"
if [ ! -x build/release/bin/lamina ]; then
  echo "Building lamina into build/release. The first time this takes about $(((14 + $(nproc) - 1) / $(nproc))) minutes on $(nproc) cores."
fi
build release lamina lamina-memory-node lamina-compute-node
exec build/release/bin/lamina serve models/tiny-stories --memory-nodes 2 --port "$port" --prompt "Once upon a time" "${more[@]}"
