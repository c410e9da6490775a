#!/usr/bin/env bash
# Installs what is missing, builds the release preset and runs all of its tests.
#
#   scripts/test.sh [--all]
#     --all   everything that has to pass before a change is merged, which is what CI runs: before these tests also style and
#             dependency checks, unit tests under sanitizers, fuzzers, and RDMA on emulated machines with Soft-RoCE.
#             FUZZ_SECONDS=10 is how long each fuzzer runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/packages.sh
source scripts/build.sh

case "$*" in
  "") all= ;;
  --all) all=yes ;;
  *)
    echo "usage: scripts/test.sh [--all]" >&2
    exit 2
    ;;
esac

jobs=$(nproc)
fuzz_seconds=${FUZZ_SECONDS:-10}
asan_folders=(base kernels tiers transport gguf hub text grammar model splitter cost wire scheduler memory_node compute_node manager api plan cli quantize bench simulation)
tsan_folders=(base tiers transport hub text cost wire memory_node compute_node manager api cli)
# What simulates or measures for seconds in the release build takes minutes under a sanitizer; of HTTPS the tests of its own are
# enough there.
only_release='^api\.over_https|^(bench|plan)\.(ClusterFile|PaperTables|KernelsBench\.Prints|TransportBench\.Prints|ProfileCommand\.Writes|LayerTimes\.AddUp)|FoundInASecond|TakeTwoSeconds|WhatIsSearchedAndCopiedIsCharged|OneLongWordTakesNoLonger'
export CMAKE_BUILD_PARALLEL_LEVEL=$jobs
start=$SECONDS

stage() { echo "[$(((SECONDS - start) / 60))m$(printf %02d $(((SECONDS - start) % 60)))s] $*"; }

# quietly COMMAND...: shows what the command says only if it fails.
quietly() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1; then
    cat "$log" >&2
    return 1
  fi
  rm -f "$log"
}

check_style() {
  python3 scripts/check_includes.py --self-test
  python3 scripts/check_includes.py
  quietly python3 scripts/planted_bugs.py --list
  find base kernels tiers transport gguf hub text grammar model splitter cost wire scheduler node memory_node compute_node manager api plan cli quantize bench tests examples \
    \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' \) -print0 | xargs -0 clang-format --dry-run -Werror
}

# test_folders PRESET FOLDER...: builds and runs the unit tests of the folders; quiet unless one fails.
test_folders() {
  local preset=$1 log folder targets=() labels=
  shift
  for folder in "$@"; do
    if compgen -G "tests/$folder/*_test.cc" >/dev/null; then
      targets+=("test_$folder")
      labels+="${labels:+|}$folder"
    fi
  done
  build "$preset" "${targets[@]}"
  log=$(mktemp)
  if ! ctest --preset "$preset" --label-regex "^($labels)\$" --exclude-regex "$only_release" --no-tests=error --parallel "$jobs" 2>&1 |
    show_progress "$log"; then
    cat "$log" >&2
    echo "Tests of preset '$preset' failed." >&2
    return 1
  fi
  rm -f "$log"
}

run_fuzzer() {
  local fuzzer=$1 name corpus log seeds=()
  name=${fuzzer##*/fuzz_}
  corpus=build/asan/corpus/$name
  log=$(mktemp)
  mkdir -p "$corpus" build/asan/findings
  if [ -d "tests/fuzz/corpus/$name" ]; then
    seeds=("tests/fuzz/corpus/$name")
  fi
  if ! "$fuzzer" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix=build/asan/findings/ "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "$fuzzer found a failure; the input is in build/asan/findings/" >&2
    return 1
  fi
  rm -f "$log"
}

# As many at a time as there are cores.
run_fuzzers() {
  export fuzz_seconds
  export -f run_fuzzer
  printf '%s\0' build/asan/bin/fuzz_* | xargs -0 -n 1 -P "$jobs" bash -c 'run_fuzzer "$1"' _
}

install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}" ${all:+"${ALL_TEST_PACKAGES[@]}"}
if [ -n "$all" ]; then
  stage "style and dependencies"
  check_style
fi
stage "release build"
build release
if [ -n "$all" ]; then
  stage "address and undefined-behaviour sanitizers"
  test_folders asan "${asan_folders[@]}"
  stage "fuzzers"
  build asan fuzzers
  run_fuzzers
  stage "thread sanitizer"
  test_folders tsan "${tsan_folders[@]}"
  stage "RDMA (Soft-RoCE)"
  quietly tests/softroce/run.sh build/release
fi
stage "all tests of the release build"
# One more than there are cores: half of the time they wait, for processes that end or are given up.
ctest --preset release --parallel "$((jobs + 1))"
