#include "manager/suspensions.h"

namespace lamina {

bool Suspensions::Begin(NodeId node, NodeId by, uint64_t number, const std::string& why) {
  const bool was = WhyOf(node) != nullptr;
  const auto [at, is_first] = latest_.try_emplace({node, by});
  Latest& latest = at->second;
  if (!is_first && (number < latest.number || (number == latest.number && latest.over)))
    return false;
  latest = {number, false, why};
  return !was;
}

bool Suspensions::End(NodeId node, NodeId by, uint64_t number) {
  const bool was = WhyOf(node) != nullptr;
  const auto [at, is_first] = latest_.try_emplace({node, by});
  Latest& latest = at->second;
  if (is_first || number >= latest.number) latest = {number, true, {}};
  return was && WhyOf(node) == nullptr;
}

void Suspensions::Forget(NodeId node) {
  std::erase_if(latest_, [&](const auto& one) { return one.first.first == node; });
}

std::set<NodeId> Suspensions::nodes() const {
  std::set<NodeId> nodes;
  for (const auto& [pair, latest] : latest_) {
    if (!latest.over) nodes.insert(pair.first);
  }
  return nodes;
}

const std::string* Suspensions::WhyOf(NodeId node) const {
  for (auto at = latest_.lower_bound({node, NodeId{}}); at != latest_.end(); ++at) {
    if (at->first.first != node) break;
    if (!at->second.over) return &at->second.why;
  }
  return nullptr;
}

}  // namespace lamina
