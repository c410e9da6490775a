// Which nodes are lost, why, and when to try to get each of them back. Pure: the caller tells the
// time.
//
// Taking a node back while others serve costs everybody: all nodes are connected anew, and what
// runs is prefilled again. So whenever a node is lost soon after it was taken back, its next return
// has to wait four times as long.
#pragma once

#include <map>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/ids.h"

namespace lamina {

struct RetryOptions {
  // After a loss; a daemon needs about that long to start again.
  Clock::duration first = std::chrono::seconds(1);
  // Between two tries, each of which waits twice as long as the one before.
  Clock::duration most = std::chrono::seconds(10);
  // After a node's loss that follows soon on its return.
  Clock::duration most_after_return = std::chrono::minutes(5);
  // A loss so long after it has nothing to do with it.
  Clock::duration settled = std::chrono::minutes(10);
};

// When to try something again: each time after twice the wait of the time before.
class Retries {
 public:
  explicit Retries(const RetryOptions& options)
      : first_(options.first), most_(options.most), wait_(options.first) {}

  // The next try is at `when`; the one after it, if that is in vain, follows soon again.
  void Begin(TimePoint when) {
    next_ = when;
    wait_ = first_;
  }

  // A try was in vain.
  void Tried(TimePoint now);

  TimePoint next() const { return next_; }

 private:
  Clock::duration first_, most_;
  Clock::duration wait_;  // from the next try in vain to the one after it
  TimePoint next_{};
};

class NodeOutages {
 public:
  explicit NodeOutages(const RetryOptions& options) : options_(options) {}

  // False if the node was lost already. Nodes with the same `group` are tried together, when the
  // last of them is due: none of them is of any use without the others. 0: it is in none.
  bool Lose(NodeId node, const std::string& why, TimePoint now, NodeId group = {});

  // The node serves again, or is about to.
  void TakeBack(NodeId node, TimePoint now);

  // Those that are lost and may be tried.
  std::set<NodeId> Due(TimePoint now) const;

  // These nodes were tried, and those of them that are still lost in vain. One that is not due was
  // lost anew meanwhile, and keeps its time.
  void Tried(const std::set<NodeId>& nodes, TimePoint now);

  const std::map<NodeId, std::string>& lost() const { return lost_; }  // with the reasons

  // When the first one is due; the end of time if none is lost.
  TimePoint next_try() const;

 private:
  struct Waiting {
    NodeId group;
    Retries retries;
  };
  TimePoint DueAt(NodeId node, const Waiting& waiting) const;  // with its group

  const RetryOptions options_;
  std::map<NodeId, std::string> lost_;
  std::map<NodeId, Waiting> waiting_;  // the same nodes
  struct Return {
    TimePoint at;
    Clock::duration wait;  // after its last loss
  };
  std::map<NodeId, Return> returns_;  // the last one of each node
};

}  // namespace lamina
