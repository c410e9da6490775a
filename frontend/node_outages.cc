#include "frontend/node_outages.h"

#include <algorithm>

namespace lamina {

bool NodeOutages::Lose(NodeId node, const std::string& why, TimePoint now) {
  if (!lost_.emplace(node, why).second) return false;
  if (taken_back_) {  // of several losses after one return the first counts
    const bool soon = now - *taken_back_ < options_.settled;
    after_loss_ = soon ? std::min<Clock::duration>(4 * after_loss_, options_.most_after_return) : options_.first;
    taken_back_.reset();
  }
  between_tries_ = options_.first;
  next_try_ = now + after_loss_;
  return true;
}

void NodeOutages::TakeBack(NodeId node, TimePoint now) {
  if (lost_.erase(node) > 0) taken_back_ = now;
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
