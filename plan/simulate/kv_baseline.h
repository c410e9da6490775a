// How other systems serve more tokens than a device has room for in its KV cache: what Pie is
// compared with. They exist in the simulator only: no node does any of it, and no cluster file can
// ask for it. What nodes do is kv_offload (docs/offload.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/device_timeline.h"
#include "base/status.h"
#include "cost/cost_model.h"
#include "plan/simulate/virtual_copy_link.h"
#include "scheduler/scheduler.h"

namespace lamina {

// Value type.
struct KvBaseline {
  enum class Kind {
    kNone,
    // vLLM's swap: the K and V of a preempted sequence are copied to the host's memory, which has
    // room for all, and back before it goes on. Both are copies before a step, which waits for
    // them.
    kSwap,
    // The same layers, the last ones, always lie in the host's memory, and attention reads them
    // there, over the link.
    kTail,
    // FlexGen: the same part of every layer's tokens always lies outside, and comes into a buffer
    // for each layer's attention: when the attention is due (kStatic), or while the layer before
    // computes, into one of two buffers (kStaticAhead). New tokens go back likewise. Only tokens
    // that are there cross the link.
    kStatic,
    kStaticAhead,
  };
  Kind kind = Kind::kNone;
  // kTail, kStatic, kStaticAhead: room for so many times the tokens, buffers counted.
  double expansion = 1;
  // kSwap: K, and V, of so many tokens of a layer are copied at a time; 0: all that there is.
  int64_t page_tokens = 0;

  // Makes it of "swap", "swap:16" (pages of 16 tokens), "tail:1.5", "static:1.5" or
  // "static-ahead:1.5". kInvalidArgument says what was expected.
  static Result<KvBaseline> Parse(const std::string& text);

  // Layers of n that stay in memory as a whole. kTail only; n otherwise.
  int LayersInside(int num_layers) const;
  // kStatic, kStaticAhead: the part of each layer that lies outside. kInvalidArgument if not even
  // all of it were enough.
  Result<double> PortionOutside(int num_layers) const;
  // Tokens that find room in so much memory, of which each takes so much of a layer. Errors are
  // those of PortionOutside.
  Result<int64_t> TokensInMemory(int num_layers, int64_t layer_token_bytes,
                                 int64_t memory_bytes) const;

  bool any() const { return kind != Kind::kNone; }
};

// One compute node that keeps its KV in this way, in virtual time. Thread: owner.
class KvBaselineNode {
 public:
  // kInvalidArgument if nothing is known of the device's link, or as KvBaseline::PortionOutside.
  // `heads`: of a layer. `windows`: as ClusterModel's.
  static Result<std::unique_ptr<KvBaselineNode>> Create(const KvBaseline& baseline,
                                                        const DeviceSpec& device,
                                                        const AttentionHeads& heads, int num_layers,
                                                        std::vector<AttentionWindow> windows,
                                                        int num_batches);

  // A step's order comes at `at`; returns when its work can begin.
  TimePoint Begin(const StepPlan& plan, TimePoint at);

  // When a layer's attention begins, and what it takes.
  struct Piece {
    TimePoint start;
    Clock::duration time{};
  };
  // The attention of a layer, over the window of this index, could begin at `now`, and takes `time`
  // where all K and V are in memory. Of the step of this batch that was begun last.
  Piece Attend(int batch, int layer, size_t window, Clock::duration time, TimePoint now);

  // Copies take so many times as long from now on.
  void SlowLink(double factor);

 private:
  // Of a step, by window.
  struct Load {
    std::vector<Clock::duration> far;   // attention that reads over the link
    std::vector<Clock::duration> come;  // a layer's part outside
    Clock::duration go{};               // of its new tokens
    TimePoint is_here;                  // kStaticAhead: the part of the layer that is next
  };
  KvBaselineNode() = default;
  Clock::duration TimeOf(int64_t tokens, double bytes_per_s) const;

  KvBaseline baseline_;
  DeviceSpec far_;  // as fast as the link
  AttentionHeads heads_;
  int num_layers_ = 0, inside_ = 0;
  std::vector<AttentionWindow> windows_;
  double portion_ = 0;
  double bytes_per_s_ = 0, back_bytes_per_s_ = 0, slow_ = 1;
  VirtualCopyLink in_;
  std::vector<Load> loads_;  // [batches]
};

}  // namespace lamina
