#include "kernels/kv_store.h"

#include <algorithm>

namespace lamina {
namespace {

std::string Name(SequenceId sequence) { return "sequence " + std::to_string(sequence.value); }

}  // namespace

Result<std::unique_ptr<KvStore>> KvStore::Create(const KvShape& shape, int64_t capacity_tokens) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<TokenSlab> slab, TokenSlab::Create(shape, capacity_tokens));
  return std::unique_ptr<KvStore>(new KvStore(std::move(slab)));
}

Status KvStore::Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step) {
  const auto found = tables_.find(sequence);
  const int64_t length = found == tables_.end() ? 0 : static_cast<int64_t>(found->second.slots.size());
  if (position != length) {
    return Corrupt(Name(sequence) + " has " + std::to_string(length) + " tokens here, but the order continues at position " +
                   std::to_string(position));
  }
  for (const TokenSlot slot : slots) {
    if (slot >= capacity_tokens()) {
      return Corrupt(Name(sequence) + ": token slot " + std::to_string(slot) + " of " + std::to_string(capacity_tokens()));
    }
  }
  Table& table = tables_[sequence];
  if (length == 0) {
    table.written.assign(static_cast<size_t>(shape().num_layers), 0);
    table.since = step;
  }
  table.slots.insert(table.slots.end(), slots.begin(), slots.end());
  used_tokens_ += static_cast<int64_t>(slots.size());
  return OkStatus();
}

void KvStore::Release(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  used_tokens_ -= static_cast<int64_t>(found->second.slots.size());
  tables_.erase(found);
}

Result<TokenSlot> KvStore::Claim(int layer, SequenceId sequence, int64_t position, StepId step) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end() || step < found->second.since) return NotFound(Name(sequence) + " is not stored here");
  Table& table = found->second;
  if (layer < 0 || layer >= shape().num_layers)
    return Corrupt("layer " + std::to_string(layer) + " of " + std::to_string(shape().num_layers));
  int64_t& written = table.written[static_cast<size_t>(layer)];
  if (position != written || position >= static_cast<int64_t>(table.slots.size())) {
    return Corrupt(Name(sequence) + " layer " + std::to_string(layer) + ": token " + std::to_string(position) + " came when token " +
                   std::to_string(written) + " of " + std::to_string(table.slots.size()) + " was due");
  }
  ++written;
  return table.slots[static_cast<size_t>(position)];
}

Status KvStore::Write(int layer, SequenceId sequence, int64_t position, const float* k, const float* v, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(const TokenSlot slot, Claim(layer, sequence, position, step));
  slab_->Write(layer, slot, k, v);
  return OkStatus();
}

Status KvStore::WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k, const void* v, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(const TokenSlot slot, Claim(layer, sequence, position, step));
  slab_->WriteRaw(layer, slot, k, v);
  return OkStatus();
}

Result<std::span<const TokenSlot>> KvStore::Readable(int layer, SequenceId sequence, int64_t num_tokens) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return NotFound(Name(sequence) + " is not stored here");
  const Table& table = found->second;
  if (layer < 0 || layer >= shape().num_layers || num_tokens > table.written[static_cast<size_t>(layer)]) {
    return Corrupt(Name(sequence) + " layer " + std::to_string(layer) + ": attention over " + std::to_string(num_tokens) +
                   " tokens, but not all of them were written");
  }
  return std::span<const TokenSlot>(table.slots).first(static_cast<size_t>(num_tokens));
}

}  // namespace lamina
