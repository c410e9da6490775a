#include "manager/node_outages.h"

#include <algorithm>

namespace lamina {

void Retries::Tried(TimePoint now) {
  next_ = now + wait_;
  wait_ = std::min(2 * wait_, most_);
}

bool NodeOutages::Lose(NodeId node, const std::string& why, TimePoint now, NodeId group) {
  if (!lost_.emplace(node, why).second) return false;
  Clock::duration wait = options_.first;
  if (const auto back = returns_.find(node); back != returns_.end()) {
    const bool soon = now - back->second.at < options_.settled;
    back->second.wait =
        soon ? std::min<Clock::duration>(4 * back->second.wait, options_.most_after_return)
             : options_.first;
    wait = back->second.wait;
  }
  waiting_.emplace(node, Waiting{group, Retries(options_)}).first->second.retries.Begin(now + wait);
  return true;
}

void NodeOutages::TakeBack(NodeId node, TimePoint now) {
  if (lost_.erase(node) == 0) return;
  waiting_.erase(node);
  returns_.try_emplace(node, Return{now, options_.first}).first->second.at = now;
}

std::set<NodeId> NodeOutages::Due(TimePoint now) const {
  std::set<NodeId> due;
  for (const auto& [node, waiting] : waiting_) {
    if (DueAt(node, waiting) <= now) due.insert(node);
  }
  return due;
}

TimePoint NodeOutages::DueAt(NodeId node, const Waiting& waiting) const {
  TimePoint last = waiting.retries.next();
  for (const auto& [other, waits] : waiting_) {
    if (other != node && waiting.group != NodeId{} && waits.group == waiting.group)
      last = std::max(last, waits.retries.next());
  }
  return last;
}

void NodeOutages::Tried(const std::set<NodeId>& nodes, TimePoint now) {
  for (auto& [node, waiting] : waiting_) {
    if (nodes.contains(node) && waiting.retries.next() <= now) waiting.retries.Tried(now);
  }
}

TimePoint NodeOutages::next_try() const {
  TimePoint first = TimePoint::max();
  for (const auto& [node, waiting] : waiting_) first = std::min(first, DueAt(node, waiting));
  return first;
}

}  // namespace lamina
