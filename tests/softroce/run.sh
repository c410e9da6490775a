#!/usr/bin/env bash
# The transport tests over RDMA, without an RDMA NIC: the whole conformance suite on one virtual machine, then the two-host tests between
# two. About three minutes, as the machines are emulated; see scripts/softroce.sh for what must be installed.
#
#   tests/softroce/run.sh [BUILD_FOLDER]      default build/release; its program test_transport must be built
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
program=${1:-build/release}/bin/test_transport
limit=${SOFTROCE_TIMEOUT:-600} # seconds, for each of the two

[ -x "$program" ] || {
  echo "run.sh: $program is missing; build it: cmake --preset release && cmake --build --preset release --target test_transport" >&2
  exit 2
}

# run_tests HOSTS FILTER MIN: the tests that match FILTER must pass, and be at least MIN: a pattern that matches nothing passes too.
run_tests() {
  scripts/softroce.sh --hosts "$1" --timeout "$limit" -- bash -c '
    export LAMINA_TEST_RDMA_ADDR=$RDMA_ADDR
    [ '"$1"' = 1 ] || export LAMINA_TEST_RANK=$RDMA_RANK LAMINA_TEST_PEER=$RDMA_PEER
    count=$("$0" --gtest_filter="$1" --gtest_list_tests | grep -c "^  ")
    [ "$count" -ge "$2" ] || { echo "only $count tests match $1: does OpenFabric(\"verbs\") work?" && exit 1; }
    "$0" --gtest_filter="$1" --gtest_color=no' "$program" "$2" "$3"
}

run_tests 1 '*/verbs:*Verbs*' 45
# UCX 1.13 aborts in its own ud transport when a Soft-RoCE peer goes: the two-host tests are for verbs and tcp.
run_tests 2 'Fabrics/TwoHosts.*-*/ucx' 10
