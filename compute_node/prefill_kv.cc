#include "compute_node/prefill_kv.h"

#include <limits>
#include <string>
#include <utility>

#include "base/host_memory.h"

namespace lamina {

Result<std::unique_ptr<PrefillKv>> PrefillKv::Create(ComputeDevice& device,
                                                     const AttentionShape& attention,
                                                     const KvShape& shape,
                                                     const AttentionLayers& layers,
                                                     int64_t capacity_tokens) {
  // Slots are numbered in 32 bits, and the free ones are kept in a list.
  if (capacity_tokens < 1 || capacity_tokens > std::numeric_limits<TokenSlot>::max())
    return InvalidArgument("prompts of " + std::to_string(capacity_tokens) +
                           " tokens at a time, expected 1 to 2^32 - 1");
  LAMINA_RETURN_IF_ERROR(
      CheckHostMemory(capacity_tokens * static_cast<int64_t>(sizeof(TokenSlot)),
                      "the free slots of " + std::to_string(capacity_tokens) + " tokens"));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LocalKv> kv,
                          device.MakeKv(attention, shape, layers, capacity_tokens));
  return std::unique_ptr<PrefillKv>(new PrefillKv(std::move(kv), capacity_tokens));
}

PrefillKv::PrefillKv(std::unique_ptr<LocalKv> kv, int64_t capacity_tokens) : kv_(std::move(kv)) {
  free_slots_.reserve(static_cast<size_t>(capacity_tokens));
  for (int64_t slot = capacity_tokens; slot > 0; --slot)
    free_slots_.push_back(static_cast<TokenSlot>(slot - 1));
}

void PrefillKv::Begin(StepId step, std::span<const AttentionWork> rows, Failures& failures) {
  for (const AttentionWork& row : rows) {
    if (failures.contains(row.sequence)) continue;
    Status status = free_slots_.empty() ? InternalError("the prefill cache is full") : OkStatus();
    if (status.ok())
      status = kv_->cache().Append(row.sequence, row.position, {&free_slots_.back(), 1}, step);
    if (!status.ok()) {
      failures.emplace(row.sequence, std::move(status));
      continue;
    }
    slots_[row.sequence].push_back(free_slots_.back());
    free_slots_.pop_back();
  }
}

void PrefillKv::End(std::span<const AttentionWork> rows, const Failures& failures) {
  for (const AttentionWork& row : rows) {
    if (row.last_chunk || failures.contains(row.sequence)) Release(row.sequence);
  }
}

void PrefillKv::Release(SequenceId sequence) {
  kv_->cache().Release(sequence);
  const auto found = slots_.find(sequence);
  if (found == slots_.end()) return;
  free_slots_.insert(free_slots_.end(), found->second.rbegin(), found->second.rend());
  slots_.erase(found);
}

}  // namespace lamina
