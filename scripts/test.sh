#!/usr/bin/env bash
# Everything that has to pass before a change is merged. Installs what is missing, then: style and dependency checks, the release build, unit
# tests under sanitizers, fuzzers, RDMA on emulated machines with Soft-RoCE, and at the end the whole test suite of the release build.
#
#   scripts/test.sh          FUZZ_SECONDS=10 is how long each fuzzer runs
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/packages.sh
source scripts/build.sh

jobs=$(nproc)
fuzz_seconds=${FUZZ_SECONDS:-10}
asan_folders=(base kernels transport splitter scheduler memory_node compute_node frontend bench)
tsan_folders=(base transport memory_node compute_node frontend)
# What simulates or measures for seconds in the release build takes minutes under a sanitizer.
only_release='^bench\.(ClusterFile|PaperTables|KernelsBench\.Prints|TransportBench\.Prints|ProfileCommand\.Writes|LayerTimes\.AddUp)|FoundInASecond'
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
  find base kernels transport splitter scheduler memory_node compute_node frontend bench tests \
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
  if ! ctest --preset "$preset" --label-regex "^($labels)\$" --exclude-regex "$only_release" --no-tests=error --parallel "$jobs" >"$log" 2>&1; then
    cat "$log" >&2
    echo "Tests of preset '$preset' failed." >&2
    return 1
  fi
  rm -f "$log"
}

run_fuzzers() {
  local fuzzer name corpus log
  log=$(mktemp)
  for fuzzer in build/asan/bin/fuzz_*; do
    name=${fuzzer##*/fuzz_}
    corpus=build/asan/corpus/$name
    mkdir -p "$corpus" build/asan/findings
    local seeds=()
    if [ -d "tests/fuzz/corpus/$name" ]; then
      seeds=("tests/fuzz/corpus/$name")
    fi
    if ! "$fuzzer" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -artifact_prefix=build/asan/findings/ "$corpus" "${seeds[@]}" >"$log" 2>&1; then
      tail -n 60 "$log" >&2
      echo "$fuzzer found a failure; the input is in build/asan/findings/" >&2
      return 1
    fi
  done
  rm -f "$log"
}

install_packages "${BUILD_PACKAGES[@]}" "${TEST_PACKAGES[@]}"
stage "style and dependencies"
check_style
stage "release build"
build release
stage "address and undefined-behaviour sanitizers"
test_folders asan "${asan_folders[@]}"
stage "fuzzers"
build asan fuzzers
run_fuzzers
stage "thread sanitizer"
test_folders tsan "${tsan_folders[@]}"
stage "RDMA (Soft-RoCE)"
quietly tests/softroce/run.sh build/release
stage "all tests"
ctest --preset release --parallel "$jobs"
