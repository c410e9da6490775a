// Compute nodes of a test that join each other, all on its thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "compute_node/context_exchange.h"
#include "tests/support/faulty_fabric.h"

namespace lamina {

using Joined = std::vector<Result<std::unique_ptr<ContextExchange>>>;

// Polls each until it is over. Returns the outcomes in the same order.
inline Joined JoinAll(std::vector<Result<JoiningExchange>> joining) {
  Joined joined;
  for (const Result<JoiningExchange>& one : joining)
    joined.emplace_back(one.ok() ? TryAgain() : one.status());
  const auto goes_on = [](const Result<std::unique_ptr<ContextExchange>>& one) {
    return one.status().code() == StatusCode::kTryAgain;
  };
  while (std::ranges::any_of(joined, goes_on)) {
    for (size_t i = 0; i < joined.size(); ++i) {
      if (goes_on(joined[i])) joined[i] = joining[i]->Poll();
    }
  }
  return joined;
}

// A ladder of one fabric, loopback with these faults, on which it listens.
inline std::shared_ptr<Ladder> ListeningOnLoopback(const FaultPlan& plan = {}) {
  std::vector<std::unique_ptr<Fabric>> fabrics;
  fabrics.push_back(std::make_unique<FaultyFabric>(*OpenFabric("loopback"), plan));
  auto ladder = std::make_shared<Ladder>(std::move(fabrics));
  const Status listening = ladder->Listen("127.0.0.1");
  if (!listening.ok()) throw std::runtime_error(listening.ToString());
  return ladder;
}

// Nodes 11, 12, ..., which are called c0, c1, ..., join each other over it. REQUIRES: `self` in the
// options is the node's own.
inline Joined JoinOverLoopback(const std::vector<ContextExchangeOptions>& options,
                               Deadline deadline = Deadline::After(std::chrono::seconds(10)),
                               const FaultPlan& plan = {}) {
  std::vector<ComputeNodeAddress> nodes;
  std::vector<std::shared_ptr<Ladder>> ladders;
  for (size_t i = 0; i < options.size(); ++i) {
    ladders.push_back(ListeningOnLoopback(plan));
    nodes.push_back(
        {NodeId{static_cast<uint32_t>(11 + i)}, "c" + std::to_string(i), ladders.back()->offers()});
  }
  std::vector<Result<JoiningExchange>> joining;
  for (size_t i = 0; i < options.size(); ++i)
    joining.push_back(ContextExchange::StartJoin(options[i], ladders[i], nodes, deadline));
  return JoinAll(std::move(joining));
}

}  // namespace lamina
