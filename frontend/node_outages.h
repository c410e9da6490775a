// Which nodes are lost, why, and when to try to get them back. Pure: the caller tells the time.
//
// Taking a node back while others serve costs everybody: all nodes are connected anew, and what runs is prefilled again. So whenever a node
// is lost soon after it was taken back, its next return has to wait four times as long.
#pragma once

#include <map>
#include <string>

#include "base/clock.h"
#include "base/ids.h"

namespace lamina {

struct RetryOptions {
  Clock::duration first = std::chrono::seconds(1);  // after a loss; a daemon needs about that long to start again
  Clock::duration most = std::chrono::seconds(10);  // between two tries, each of which waits twice as long as the one before
  // After a node's loss that follows soon on its return.
  Clock::duration most_after_return = std::chrono::minutes(5);
  Clock::duration settled = std::chrono::minutes(10);  // a loss so long after it has nothing to do with it
};

class NodeOutages {
 public:
  explicit NodeOutages(const RetryOptions& options) : options_(options) {}

  // False if the node was lost already.
  bool Lose(NodeId node, const std::string& why, TimePoint now);

  // The node serves again, or is about to.
  void TakeBack(NodeId node, TimePoint now);

  // A try was in vain.
  void Tried(TimePoint now);

  // The time between tries is a short one again.
  void Hurry(TimePoint now);

  const std::map<NodeId, std::string>& lost() const { return lost_; }  // with the reasons
  TimePoint next_try() const { return next_try_; }

 private:
  const RetryOptions options_;
  std::map<NodeId, std::string> lost_;
  TimePoint next_try_{};
  Clock::duration between_tries_ = options_.first;
  struct Return {
    TimePoint at;
    Clock::duration wait;  // after its last loss
  };
  std::map<NodeId, Return> returns_;  // the last one of each node
};

}  // namespace lamina
