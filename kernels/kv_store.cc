#include "kernels/kv_store.h"

namespace lamina {

Result<std::unique_ptr<KvStore>> KvStore::Create(const KvShape& shape, int64_t capacity_tokens) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<TokenSlab> slab,
                          TokenSlab::Create(shape, capacity_tokens));
  slab->StartPrefault();
  return std::unique_ptr<KvStore>(new KvStore(std::move(slab), capacity_tokens, nullptr));
}

Result<std::unique_ptr<KvStore>> KvStore::CreateIn(std::unique_ptr<LayerMemory> layers,
                                                   const KvShape& shape, int64_t capacity_tokens) {
  ElasticLayers* const elastic = layers->elastic();
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<TokenSlab> slab,
                          TokenSlab::CreateIn(std::move(layers), shape));
  return std::unique_ptr<KvStore>(new KvStore(std::move(slab), capacity_tokens, elastic));
}

Status KvStore::AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                            StepId step) {
  LAMINA_RETURN_IF_ERROR(Append(sequence, position, slots, step));
  LAMINA_RETURN_IF_ERROR(tables_.ClaimAll(sequence, position + std::ssize(slots), step));
  // Only now: slots that the tables refuse are not touched.
  slab_->FillDummy(slots);
  return OkStatus();
}

Status KvStore::Write(int layer, SequenceId sequence, int64_t position, const float* k,
                      const float* v, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(const TokenSlot slot, tables_.Claim(layer, sequence, position, step));
  slab_->Write(layer, slot, k, v);
  return OkStatus();
}

Status KvStore::WriteRaw(int layer, SequenceId sequence, int64_t position, const void* k,
                         const void* v, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(const TokenSlot slot, tables_.Claim(layer, sequence, position, step));
  slab_->WriteRaw(layer, slot, k, v);
  return OkStatus();
}

}  // namespace lamina
