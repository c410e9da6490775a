#include "frontend/node_outages.h"

#include <algorithm>

namespace lamina {

bool NodeOutages::Lose(NodeId node, const std::string& why, TimePoint now) {
  if (!lost_.emplace(node, why).second) return false;
  Clock::duration wait = options_.first;
  if (const auto back = returns_.find(node); back != returns_.end()) {
    const bool soon = now - back->second.at < options_.settled;
    back->second.wait = soon ? std::min<Clock::duration>(4 * back->second.wait, options_.most_after_return) : options_.first;
    wait = back->second.wait;
  }
  between_tries_ = options_.first;
  next_try_ = lost_.size() == 1 ? now + wait : std::max(next_try_, now + wait);
  return true;
}

void NodeOutages::TakeBack(NodeId node, TimePoint now) {
  if (lost_.erase(node) > 0) returns_.try_emplace(node, Return{now, options_.first}).first->second.at = now;
}

void NodeOutages::Tried(TimePoint now) {
  next_try_ = now + between_tries_;
  between_tries_ = std::min(2 * between_tries_, options_.most);
}

void NodeOutages::Hurry(TimePoint now) {
  between_tries_ = options_.first;
  next_try_ = now;
}

}  // namespace lamina
