#include "memory_node/modelled_kv_device.h"

#include "splitter/cost_model.h"

namespace lamina {
namespace {

std::string NameOf(SequenceId sequence) { return "sequence " + std::to_string(sequence.value); }

}  // namespace

Status ModelledKvDevice::Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step) {
  const auto found = tables_.find(sequence);
  const int64_t length = found == tables_.end() ? 0 : static_cast<int64_t>(found->second.slots.size());
  if (position != length) {
    return Corrupt(NameOf(sequence) + " has " + std::to_string(length) + " tokens here, but the order continues at position " +
                   std::to_string(position));
  }
  for (const TokenSlot slot : slots) {
    if (slot >= capacity_tokens_)
      return Corrupt(NameOf(sequence) + ": token slot " + std::to_string(slot) + " of " + std::to_string(capacity_tokens_));
  }
  Table& table = tables_[sequence];
  if (length == 0) table.since = step;
  table.slots.insert(table.slots.end(), slots.begin(), slots.end());
  used_tokens_ += static_cast<int64_t>(slots.size());
  return OkStatus();
}

void ModelledKvDevice::Release(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  used_tokens_ -= static_cast<int64_t>(found->second.slots.size());
  tables_.erase(found);
}

Status ModelledKvDevice::CheckHolds(SequenceId sequence, int64_t position, StepId step) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end() || step < found->second.since) return NotFound(NameOf(sequence) + " is not stored here");
  if (position < static_cast<int64_t>(found->second.slots.size())) return OkStatus();
  return Corrupt(NameOf(sequence) + ": token " + std::to_string(position) + " of " + std::to_string(found->second.slots.size()));
}

Status ModelledKvDevice::Write(int, SequenceId sequence, int64_t position, const float*, const float*, StepId step) {
  return CheckHolds(sequence, position, step);
}

Status ModelledKvDevice::WriteRaw(int, SequenceId sequence, int64_t position, const void*, const void*, StepId step) {
  return CheckHolds(sequence, position, step);
}

Result<std::span<const TokenSlot>> ModelledKvDevice::Readable(int, SequenceId sequence, int64_t num_tokens) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return NotFound(NameOf(sequence) + " is not stored here");
  if (num_tokens > static_cast<int64_t>(found->second.slots.size())) {
    return Corrupt(NameOf(sequence) + " has " + std::to_string(found->second.slots.size()) + " tokens here, not " +
                   std::to_string(num_tokens));
  }
  return std::span<const TokenSlot>(found->second.slots).first(static_cast<size_t>(num_tokens));
}

void ModelledKvDevice::Attend(const AttentionShape& shape, int, std::span<const AttentionRow> rows) {
  AttentionLoad load;
  for (const AttentionRow& row : rows) load.AddDecode(row.num_tokens);
  timeline_.Run(FromSeconds(AttentionSeconds(device_, {shape.num_heads, shape.num_kv_heads, shape.head_dim, dtype_}, load)));
}

}  // namespace lamina
