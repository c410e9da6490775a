#include "manager/node_outages.h"

#include <algorithm>

namespace lamina {

void Retries::Tried(TimePoint now) {
  next_ = now + wait_;
  wait_ = std::min(2 * wait_, most_);
}

bool NodeOutages::Lose(NodeId node, const std::string& why, TimePoint now) {
  if (!lost_.emplace(node, why).second) return false;
  Clock::duration wait = options_.first;
  if (const auto back = returns_.find(node); back != returns_.end()) {
    const bool soon = now - back->second.at < options_.settled;
    back->second.wait =
        soon ? std::min<Clock::duration>(4 * back->second.wait, options_.most_after_return)
             : options_.first;
    wait = back->second.wait;
  }
  retries_.emplace(node, options_).first->second.Begin(now + wait);
  return true;
}

void NodeOutages::TakeBack(NodeId node, TimePoint now) {
  if (lost_.erase(node) == 0) return;
  retries_.erase(node);
  returns_.try_emplace(node, Return{now, options_.first}).first->second.at = now;
}

std::set<NodeId> NodeOutages::Due(TimePoint now) const {
  std::set<NodeId> due;
  for (const auto& [node, retries] : retries_) {
    if (retries.next() <= now) due.insert(node);
  }
  return due;
}

void NodeOutages::Tried(TimePoint now) {
  for (auto& [node, retries] : retries_) {
    if (retries.next() <= now) retries.Tried(now);
  }
}

TimePoint NodeOutages::next_try() const {
  TimePoint first = TimePoint::max();
  for (const auto& [node, retries] : retries_) first = std::min(first, retries.next());
  return first;
}

}  // namespace lamina
