// Records where the time of a compute node's steps goes: sums for the next result, and the newest
// records in a ring, for traces. The kinds of work are those of wire/step_times.h.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock_offset.h"
#include "base/ids.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"
#include "wire/step_times.h"

namespace lamina {

// What a record is about.
struct TracedWork {
  StepId step;
  int batch = 0;
  int layer = 0;
  size_t rows = 0;
};

// The owner calls Ran after every piece of work. Bubbles need no call of their own: they are the
// time between two pieces of work while a step is under way. Nothing locks, and nothing allocates
// once every memory node has answered. Thread: one owner.
class StepTrace {
 public:
  // 2.6 MB: about a second of the steps of a model with a few layers, minutes of those of a large
  // one.
  static constexpr size_t kRecords = 1 << 16;

  explicit StepTrace(size_t num_records = kRecords);

  // `timed` says whether work is timed from now on, whatever step it belongs to.
  void BeginStep(bool timed);
  void EndStep(const TracedWork& of, int64_t begun_ns);

  bool on() const { return on_; }
  // The time now, or 0 if nothing is timed. Work with a start of 0 is not recorded.
  int64_t Now() const { return on_ ? NowNs() : 0; }

  // Records that this node did `work` from `start_ns` until now. Returns the time now, which is
  // when the next work starts.
  int64_t Ran(StepWork work, const TracedWork& of, int64_t start_ns);

  // Records that the reply of memory node `node` to a message that was posted at `posted_ns` has
  // been taken.
  void Answered(NodeId node, const TracedWork& of, int64_t posted_ns, const ReplyTimes& times);

  // Answered, for a message that a compute node with another clock has posted: adds to the sums
  // what the memory node has timed itself, and makes no records.
  void AnsweredAnother(NodeId node, const ReplyTimes& times);

  // Moves the sums since the last call to the result.
  void TellTimes(StepResult& result);

  // Moves the oldest records that were not taken yet, up to `max_records`, to the answer, with the
  // number of those that were overwritten before they could be taken.
  void TellRecords(size_t max_records, TraceAnswer& answer);

 private:
  struct Peer {
    NodeId node;
    ClockOffset clock;
    StepTimes sums;
  };

  Peer& PeerOf(NodeId node);
  struct Interval {
    int64_t start_ns = 0, end_ns = 0;
  };
  void Write(StepWork work, NodeId node, const TracedWork& of, Interval when, StepTimes& sums);

  std::vector<StepRecord> ring_;
  uint64_t written_ = 0;  // records so far; record i is at i % size
  uint64_t taken_ = 0;    // records taken or lost so far
  bool on_ = true;
  int num_under_way_ = 0;      // steps
  int64_t idle_since_ns_ = 0;  // end of the last work; 0 if no step is under way
  StepTimes sums_;
  std::vector<Peer> peers_;  // a few
};

}  // namespace lamina
