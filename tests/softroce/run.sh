#!/usr/bin/env bash
# The tests that need RDMA, without an RDMA NIC. On one virtual machine: the transport's conformance suite and who may join a session.
# Between two: the transport's two-host tests, and the shipped model's golden continuations with the memory nodes on the second machine.
# And where this machine's kernel cannot delay packets (netem), on one: the cluster on four hosts, which are network namespaces.
# Some minutes, as the machines are emulated; see scripts/softroce.sh for what must be installed.
#
#   tests/softroce/run.sh [BUILD_FOLDER]      default build/release; its programs must be built
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=${1:-build/release}/bin
limit=${SOFTROCE_TIMEOUT:-900} # seconds, for each of these

for program in test_transport test_memory_node test_e2e lamina-memory-node lamina-compute-node; do
  [ -x "$bin/$program" ] || {
    echo "run.sh: $bin/$program is missing; build it: cmake --preset release && cmake --build --preset release" >&2
    exit 2
  }
done

# Their kernel can delay packets; without the RDMA device, as the namespaces do not reach it.
run_four_hosts() {
  scripts/softroce.sh --timeout "$limit" -- bash -c 'rdma link delete rxe0 && "$0" --gtest_filter="FourHosts.*" --gtest_color=no' "$bin/test_e2e"
}

# run_tests HOSTS PROGRAM FILTER MIN: the tests that match FILTER must pass, and be at least MIN: a pattern that matches nothing passes too.
run_tests() {
  scripts/softroce.sh --hosts "$1" --timeout "$limit" -- bash -c '
    export LAMINA_TEST_RDMA_ADDR=$RDMA_ADDR
    [ '"$1"' = 1 ] || export LAMINA_TEST_RANK=$RDMA_RANK LAMINA_TEST_PEER=$RDMA_PEER
    count=$("$0" --gtest_filter="$1" --gtest_list_tests | grep -c "^  ")
    [ "$count" -ge "$2" ] || { echo "only $count tests match $1: does OpenFabric(\"verbs\") work?" && exit 1; }
    "$0" --gtest_filter="$1" --gtest_color=no' "$bin/$2" "$3" "$4"
}

run_tests 1 test_transport '*/verbs:*Verbs*' 45
run_tests 1 test_memory_node '*/verbs' 4
# UCX 1.13 aborts in its own ud transport when a Soft-RoCE peer goes: the two-host tests are for verbs and tcp.
run_tests 2 test_transport 'Fabrics/TwoHosts.*-*/ucx' 10
run_tests 2 test_e2e '*GoldenOnTwoHosts*' 2
modinfo sch_netem >/dev/null 2>&1 || run_four_hosts
