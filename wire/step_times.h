// What the time of a step goes into: the kinds of work that are timed, and how records of them
// travel. Every process times always; sums reach the manager with each step's result and stand in
// /metrics, single records are fetched only while a trace is written.
//
// A compute node does one thing at a time, and so does a memory node:
//   kStep        compute node: a whole step of a batch, from its order to its result
//   kSlice       compute node: runs slice k of a batch
//   kPost        compute node: gathers and posts q, k and v of a layer. Attention that stays with
//   it is in here too: of prompts, and of all
//                rows in a cluster without memory nodes
//   kTake        compute node: copies and merges the outputs of a layer
//   kSample      compute node: logits become tokens
//   kQWire       from the post of a decode message until the memory node's poll has shown it
//   kQueue       from then until the memory node starts on it: other messages come first, or the
//   step's order is not here yet kAttention   memory node: stores k and v of the new tokens, and
//   attends kOutputWire  from the complete output until the compute node has taken it; waiting for
//   the compute node to be free is in here too kBubble      a node has at least one step under way
//   and does nothing of the above; on a compute node for 1 us or more. A memory node's
//                step is under way from its order to the output of its last layer, and storing
//                pushed K and V is no bubble; steps that only store have none
// kQWire, kQueue, kAttention, kOutputWire and a memory node's kBubble are of one memory node and
// one message. The compute node makes their records: the reply tells it the memory node's times,
// which it puts on its own clock (base/clock_offset.h). On one host that is exact; else the two
// wires' sum is exact, and how it is shared between them is wrong by at most half of the shortest
// recent round trip.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lamina {

// Values are part of the format: append only.
enum class StepWork : uint8_t {
  kStep,
  kSlice,
  kPost,
  kTake,
  kSample,
  kQWire,
  kQueue,
  kAttention,
  kOutputWire,
  kBubble
};
inline constexpr size_t kNumStepWorks = 10;

const char* StepWorkName(StepWork work);  // "slice", "q wire"

// Sums by kind, in nanoseconds.
struct StepTimes {
  std::array<int64_t, kNumStepWorks> ns{};
  int64_t of(StepWork work) const { return ns[static_cast<size_t>(work)]; }
  void Add(StepWork work, int64_t duration_ns) { ns[static_cast<size_t>(work)] += duration_ns; }
};

// One piece of work. Little-endian; travels in control::Trace as it stands here.
struct StepRecord {
  int64_t start_ns = 0;  // 0   clock of the compute node
  int64_t end_ns = 0;    // 8
  uint64_t step = 0;     // 16
  uint32_t node = 0;     // 24  memory node; 0: the compute node that made the record
  uint32_t rows = 0;     // 28
  uint16_t layer = 0;    // 32  kSlice: the slice
  StepWork work{};       // 34
  uint8_t batch = 0;     // 35
  uint32_t unused = 0;   // 36
};
static_assert(sizeof(StepRecord) == 40 && offsetof(StepRecord, unused) == 36);

std::string EncodeRecords(std::span<const StepRecord> records);
// None: no whole number of records, a kind that is not known, or an end before its start.
std::optional<std::vector<StepRecord>> DecodeRecords(const std::string& bytes);

// What a memory node says about a decode message that has kTimes (wire_format.h): the last bytes of
// the reply's payload, behind all else. By its own steady_clock. Little-endian.
struct ReplyTimes {
  uint64_t clock = 0;      // 0   ClockId
  int64_t noticed_ns = 0;  // 8   its poll showed the message
  int64_t started_ns = 0;  // 16
  int64_t done_ns = 0;     // 24  the output is complete
  int64_t bubble_ns = 0;   // 32  its bubble since the reply before, to whomever
};
static_assert(sizeof(ReplyTimes) == 40);

// Cuts the times off the end of a reply's payload. None: it is too short and stays as it is, or the
// times contradict themselves.
std::optional<ReplyTimes> CutReplyTimes(std::span<const std::byte>& payload);

}  // namespace lamina
