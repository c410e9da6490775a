#include "kernels/kv_store.h"

#include <algorithm>

namespace lamina {

Result<std::unique_ptr<KvStore>> KvStore::Create(const KvShape& shape, int64_t capacity_tokens) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<TokenSlab> slab, TokenSlab::Create(shape, capacity_tokens));
  return std::unique_ptr<KvStore>(new KvStore(std::move(slab)));
}

Status KvStore::AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step) {
  LAMINA_RETURN_IF_ERROR(Append(sequence, position, slots, step));
  LAMINA_ASSIGN_OR_RETURN(KvTables::Table* const table, tables_.Find(sequence, step));
  std::ranges::fill(table->written, position + std::ssize(slots));
  for (const TokenSlot slot : slots) slab_->FillDummy(slot);
  return OkStatus();
}

Result<TokenSlot> KvStore::Claim(int layer, SequenceId sequence, int64_t position, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(KvTables::Table* const table, tables_.Find(sequence, step));
  if (layer < 0 || layer >= shape().num_layers)
    return Corrupt("layer " + std::to_string(layer) + " of " + std::to_string(shape().num_layers));
  int64_t& written = table->written[static_cast<size_t>(layer)];
  if (position != written || position >= static_cast<int64_t>(table->slots.size())) {
    return Corrupt(NameOf(sequence) + " layer " + std::to_string(layer) + ": token " + std::to_string(position) + " came when token " +
                   std::to_string(written) + " of " + std::to_string(table->slots.size()) + " was due");
  }
  ++written;
  return table->slots[static_cast<size_t>(position)];
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
  LAMINA_ASSIGN_OR_RETURN(const KvTables::Table* const table, tables_.Find(sequence));
  if (layer < 0 || layer >= shape().num_layers || num_tokens < 0 || num_tokens > table->written[static_cast<size_t>(layer)]) {
    return Corrupt(NameOf(sequence) + " layer " + std::to_string(layer) + ": attention over " + std::to_string(num_tokens) +
                   " tokens, but not all of them were written");
  }
  return std::span<const TokenSlot>(table->slots).first(static_cast<size_t>(num_tokens));
}

}  // namespace lamina
