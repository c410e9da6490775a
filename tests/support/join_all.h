// Compute nodes of a test that join each other, all on its thread.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "compute_node/context_exchange.h"

namespace lamina {

// Polls each until it is over. Returns the outcomes in the same order.
inline std::vector<Result<std::unique_ptr<ContextExchange>>> JoinAll(
    std::vector<Result<JoiningExchange>> joining) {
  std::vector<Result<std::unique_ptr<ContextExchange>>> joined;
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

}  // namespace lamina
