#include "memory_node/modelled_kv_device.h"

#include "cost/cost_model.h"

namespace lamina {

// The tables have no layers here (see the constructor), so KvTables::Claim and Readable, which look
// at what was written in a layer, would refuse everything. Only the tables' lengths are checked.
Status ModelledKvDevice::CheckHolds(SequenceId sequence, int64_t position, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(const KvTables::Table* const table, tables_.Find(sequence, step));
  if (position < static_cast<int64_t>(table->slots.size())) return OkStatus();
  return Corrupt(NameOf(sequence) + ": token " + std::to_string(position) + " of " +
                 std::to_string(table->slots.size()));
}

Status ModelledKvDevice::WriteRaw(int, SequenceId sequence, int64_t position, const void*,
                                  const void*, StepId step) {
  return CheckHolds(sequence, position, step);
}

Result<std::span<const TokenSlot>> ModelledKvDevice::Readable(int, SequenceId sequence,
                                                              int64_t num_tokens) const {
  LAMINA_ASSIGN_OR_RETURN(const KvTables::Table* const table, tables_.Find(sequence));
  if (num_tokens > static_cast<int64_t>(table->slots.size())) {
    return Corrupt(NameOf(sequence) + " has " + std::to_string(table->slots.size()) +
                   " tokens here, not " + std::to_string(num_tokens));
  }
  return std::span<const TokenSlot>(table->slots).first(static_cast<size_t>(num_tokens));
}

void ModelledKvDevice::Attend(const AttentionShape& shape, int, DType,
                              std::span<const KvQuery> rows) {
  AttentionLoad load;
  for (const KvQuery& row : rows) load.AddDecode(std::ssize(row.slots));
  timeline_.Run(FromSeconds(AttentionSeconds(
      device_, {shape.num_heads, shape.num_kv_heads, shape.head_dim, dtype_}, load)));
}

}  // namespace lamina
