// What a compute node writes down about the times of its steps: sums for the next result, and the
// newest records in a ring.
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock_offset.h"
#include "base/ids.h"
#include "wire/control.pb.h"
#include "wire/step_times.h"

namespace lamina {

// What a record is about.
struct TracedWork {
  StepId step;
  int batch = 0;
  int layer = 0;
  size_t rows = 0;
};

// The bubble needs no calls of its own: it is what lies between two pieces of work while a step is
// under way. Neither locks nor allocates once every memory node has answered. Thread: one owner.
class StepTrace {
 public:
  // 2.6 MB; about a second of steps of a few layers, minutes of large ones.
  static constexpr size_t kRecords = 1 << 16;

  explicit StepTrace(size_t num_records = kRecords);

  void BeginStep(bool timed);  // from now on work is timed or not
  void EndStep(const TracedWork& of, int64_t begun_ns);

  bool on() const { return on_; }
  // 0: nothing is timed now; what is said to have started then is not recorded.
  int64_t Now() const { return on_ ? NowNs() : 0; }

  // This node did `work` from `start_ns` until now. Returns now, when the next work starts.
  int64_t Ran(StepWork work, const TracedWork& of, int64_t start_ns);

  // The reply of `node` has been taken; its message was posted at `posted_ns`.
  void Answered(NodeId node, const TracedWork& of, int64_t posted_ns, const ReplyTimes& times);

  // The same for a message that a compute node with another clock posted: only sums of what the
  // memory node timed itself.
  void AnsweredAnother(NodeId node, const ReplyTimes& times);

  // Moves the sums since the last call to the result.
  void TellTimes(control::StepResult& result);

  // Takes the oldest records that were not taken yet, up to `max_records`, and says how many were
  // overwritten before.
  void TellRecords(size_t max_records, control::Trace& answer);

 private:
  struct Peer {
    NodeId node;
    ClockOffset clock;
    StepTimes sums;
  };

  Peer& PeerOf(NodeId node);
  void Write(StepWork work, NodeId node, const TracedWork& of, int64_t start_ns, int64_t end_ns,
             StepTimes& sums);

  std::vector<StepRecord> ring_;
  uint64_t written_ = 0;  // record i stands at i % size
  uint64_t taken_ = 0;
  bool on_ = true;
  int num_under_way_ = 0;
  int64_t idle_since_ns_ = 0;  // 0: no step is under way
  StepTimes sums_;
  std::vector<Peer> peers_;  // a few
};

}  // namespace lamina
