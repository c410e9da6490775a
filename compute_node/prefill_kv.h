// KV of prompts while they are computed: which slots of the compute node's own cache their tokens
// have. When a prompt is complete, memory nodes have all of it, and its slots are free again.
#pragma once

#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"

namespace lamina {

// Thread: one owner, that of the device.
class PrefillKv {
 public:
  // Room for `capacity_tokens`. Other arguments are those of ComputeDevice::MakeKv. The device must
  // outlive this object. kInvalidArgument if there cannot be so many tokens; kOutOfSpace if the
  // device has no room for them, or the host none for the list of free slots.
  static Result<std::unique_ptr<PrefillKv>> Create(ComputeDevice& device,
                                                   const AttentionShape& attention,
                                                   const KvShape& shape,
                                                   const AttentionLayers& layers,
                                                   int64_t capacity_tokens);

  // Takes a slot for each row of a step, all of them prefill rows. Rows of sequences in `failures`
  // are skipped, and new failures are added to it: kInternal if no slot is left.
  void Begin(StepId step, std::span<const AttentionWork> rows, Failures& failures);

  // Stores k and v of these rows and computes their attention. Row i of the values belongs to
  // rows[i]; their layer counts from the first of KvShape. Rows of sequences in `failures` are
  // skipped, and new failures are added to it.
  void Attend(const AttentionValues& values, StepId step, std::span<const AttentionWork> rows,
              Failures& failures) {
    kv_->Attend(values, step, rows, failures);
  }

  // The step is over: prompts of which these are the last rows, or that have failed, are released.
  void End(std::span<const AttentionWork> rows, const Failures& failures);

  // Frees the slots of a sequence. Does nothing if it has none.
  void Release(SequenceId sequence);

 private:
  PrefillKv(std::unique_ptr<LocalKv> kv, int64_t capacity_tokens);

  const std::unique_ptr<LocalKv> kv_;
  std::vector<TokenSlot> free_slots_;  // the last one is taken next
  std::unordered_map<SequenceId, std::vector<TokenSlot>> slots_;
};

}  // namespace lamina
