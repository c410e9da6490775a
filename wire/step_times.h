// Where the time of a step goes: the kinds of work that are timed, and how records of them travel.
// Every process times its work always. Sums reach the manager with each step's result and appear in
// /metrics; single records are fetched only while a trace is written.
//
// A compute node does one thing at a time, and so does a memory node:
//   kStep        compute node: a whole step of a batch, from its order to its result
//   kSlice       compute node: runs slice k of a batch
//   kPost        compute node: gathers and posts q, k and v of a layer. Includes attention that is
//                computed here: of prompts, and of all rows in a cluster without memory nodes
//   kTake        compute node: copies and merges the outputs of a layer
//   kSample      compute node: chooses tokens from logits
//   kQWire       from the post of a decode message until the memory node's poll has shown it
//   kQueue       from then until the memory node starts on it: other messages come first, or the
//                step's order is not there yet
//   kAttention   memory node: stores k and v of the new tokens, and attends
//   kOutputWire  from the complete output until the compute node has taken it, including the time
//                until the compute node is free to take it
//   kBubble      a node has at least one step under way and does nothing of the above; on a compute
//                node only gaps of 1 us or more count. A memory node's step is under way from its
//                order to the output of its last layer. Storing pushed K and V is no bubble, and
//                steps that only store have none
// kQWire, kQueue, kAttention, kOutputWire and a memory node's kBubble each belong to one memory
// node and one message. The compute node makes their records: the reply contains the memory node's
// times, which the compute node converts to its own clock (base/clock_offset.h). On one host that
// is exact. Between hosts the sum of the two wires is exact, and how it is divided between them is
// wrong by at most half of the shortest recent round trip.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lamina {

// The values are part of the format: append new kinds at the end only.
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
  void Add(const StepTimes& other) {
    for (size_t i = 0; i < ns.size(); ++i) ns[i] += other.ns[i];
  }
};

// One piece of work. TraceAnswer carries these bytes as they are, little-endian; the remarks
// begin with the offset.
struct StepRecord {
  int64_t start_ns = 0;  // 0   clock of the compute node
  int64_t end_ns = 0;    // 8
  uint64_t step = 0;     // 16
  uint32_t node = 0;     // 24  memory node; 0: the compute node that made the record
  uint32_t rows = 0;     // 28
  uint16_t layer = 0;    // 32  of the model; kSlice: the slice
  StepWork work{};       // 34
  uint8_t batch = 0;     // 35
  uint32_t unused = 0;   // 36
};
static_assert(sizeof(StepRecord) == 40 && offsetof(StepRecord, unused) == 36);

std::string EncodeRecords(std::span<const StepRecord> records);
// nullopt if the bytes are not whole records, or if a record has an unknown kind or impossible
// times.
std::optional<std::vector<StepRecord>> DecodeRecords(const std::string& bytes);

// When a memory node worked on a decode message that has kTimes (wire_format.h), by the memory
// node's steady_clock. These are the last bytes of the reply's payload, little-endian.
struct ReplyTimes {
  uint64_t clock = 0;      // 0   ClockId
  int64_t noticed_ns = 0;  // 8   its poll showed the message
  int64_t started_ns = 0;  // 16
  int64_t done_ns = 0;     // 24  the output is complete
  int64_t bubble_ns = 0;   // 32  its bubble since its last reply to any compute node
};
static_assert(sizeof(ReplyTimes) == 40);

// Cuts the times off the end of a reply's payload and returns them. nullopt if the payload is too
// short, which then stays as it is, or if the times are impossible.
std::optional<ReplyTimes> CutReplyTimes(std::span<const std::byte>& payload);

}  // namespace lamina
