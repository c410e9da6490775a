#include "kernels/modelled_kv_cache.h"

#include <string>

namespace lamina {

// The tables have no layers here, so KvTables::Claim and Readable, which look at what was written
// in a layer, would refuse everything. Only the tables' lengths are checked.
Status ModelledKvCache::WriteRaw(int /*layer*/, SequenceId sequence, int64_t position,
                                 const void* /*k*/, const void* /*v*/, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(const KvTables::Table* const table, tables_.Find(sequence, step));
  if (position < static_cast<int64_t>(table->slots.size())) return OkStatus();
  return Corrupt(NameOf(sequence) + ": token " + std::to_string(position) + " of " +
                 std::to_string(table->slots.size()));
}

Result<std::span<const TokenSlot>> ModelledKvCache::Readable(int /*layer*/, SequenceId sequence,
                                                             int64_t num_tokens) const {
  LAMINA_ASSIGN_OR_RETURN(const KvTables::Table* const table, tables_.Find(sequence));
  if (num_tokens > static_cast<int64_t>(table->slots.size())) {
    return Corrupt(NameOf(sequence) + " has " + std::to_string(table->slots.size()) +
                   " tokens here, not " + std::to_string(num_tokens));
  }
  return std::span<const TokenSlot>(table->slots).first(static_cast<size_t>(num_tokens));
}

}  // namespace lamina
