#include "kernels/kv_tables.h"

#include <algorithm>

namespace lamina {

std::string NameOf(SequenceId sequence) { return "sequence " + std::to_string(sequence.value); }

Status KvTables::Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                        StepId step) {
  const auto found = tables_.find(sequence);
  const int64_t length =
      found == tables_.end() ? 0 : static_cast<int64_t>(found->second.slots.size());
  if (position != length) {
    return Corrupt(NameOf(sequence) + " has " + std::to_string(length) +
                   " tokens here, but the order continues at position " + std::to_string(position));
  }
  // All slots are checked before the table is touched, so that an error changes nothing.
  const int64_t capacity = capacity_tokens();
  for (const TokenSlot slot : slots) {
    if (slot >= capacity)
      return Corrupt(NameOf(sequence) + ": token slot " + std::to_string(slot) + " of " +
                     std::to_string(capacity));
  }
  Table& table = tables_[sequence];
  if (length == 0) {
    table.written.assign(static_cast<size_t>(num_layers_), 0);
    table.since = step;
  }
  table.slots.insert(table.slots.end(), slots.begin(), slots.end());
  used_tokens_ += static_cast<int64_t>(slots.size());
  return OkStatus();
}

Status KvTables::Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) {
  LAMINA_RETURN_IF_ERROR(Append(sequence, 0, slots, step));
  std::vector<int64_t>& written = tables_[sequence].written;
  written.assign(written.size(), static_cast<int64_t>(slots.size()));
  return OkStatus();
}

Status KvTables::SetLayersInside(int num_layers) {
  if (layers_ == nullptr)
    return Unimplemented(
        "as many layers of this node's KV cache have a place in memory as when it "
        "was started");
  const ElasticKv& kv = layers_->kv();
  if (num_layers < kv.least_inside || num_layers > kv.num_layers) {
    return InvalidArgument(std::to_string(num_layers) + " of the " + std::to_string(kv.num_layers) +
                           " layers of the KV cache inside: there have to be at least " +
                           std::to_string(kv.least_inside));
  }
  if (const int64_t tokens = kv.Tokens(num_layers); tokens < capacity_tokens()) {
    for (const auto& [sequence, table] : tables_) {
      if (!table.slots.empty() && std::ranges::max(table.slots) >= tokens)
        return Corrupt(NameOf(sequence) + " has a token slot behind the " + std::to_string(tokens) +
                       " that there is room for with " + std::to_string(num_layers) +
                       " layers inside");
    }
  }
  return layers_->SetInside(num_layers);
}

std::vector<SequenceId> KvTables::sequences() const {
  std::vector<SequenceId> sequences;
  sequences.reserve(tables_.size());
  for (const auto& [sequence, table] : tables_) sequences.push_back(sequence);
  return sequences;
}

int64_t KvTables::NumWritten(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return 0;
  const Table& table = found->second;
  // A device that is only modelled has no layers to write.
  return table.written.empty() ? std::ssize(table.slots) : std::ranges::min(table.written);
}

void KvTables::Truncate(SequenceId sequence, int64_t num_tokens) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end() || num_tokens < 0) return;
  Table& table = found->second;
  const int64_t num_cut = static_cast<int64_t>(table.slots.size()) - num_tokens;
  if (num_cut <= 0) return;
  table.slots.resize(static_cast<size_t>(num_tokens));
  for (int64_t& written : table.written) written = std::min(written, num_tokens);
  used_tokens_ -= num_cut;
}

void KvTables::Release(SequenceId sequence) {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return;
  used_tokens_ -= static_cast<int64_t>(found->second.slots.size());
  tables_.erase(found);
}

Result<KvTables::Table*> KvTables::Find(SequenceId sequence, StepId step) {
  const auto found = tables_.find(sequence);
  // A sequence that was preempted starts a new table under its old id. A message of a step before
  // that is about the old table.
  if (found == tables_.end() || step < found->second.since)
    return NotFound(NameOf(sequence) + " is not stored here");
  return &found->second;
}

Result<const KvTables::Table*> KvTables::Find(SequenceId sequence) const {
  const auto found = tables_.find(sequence);
  if (found == tables_.end()) return NotFound(NameOf(sequence) + " is not stored here");
  return &found->second;
}

Result<TokenSlot> KvTables::Claim(int layer, SequenceId sequence, int64_t position, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(Table* const table, Find(sequence, step));
  if (layer < 0 || layer >= num_layers_)
    return Corrupt("layer " + std::to_string(layer) + " of " + std::to_string(num_layers_));
  // A token that comes again, or before its predecessor, shows that a message was repeated or lost.
  int64_t& written = table->written[static_cast<size_t>(layer)];
  if (position != written || position >= static_cast<int64_t>(table->slots.size())) {
    return Corrupt(NameOf(sequence) + " layer " + std::to_string(layer) + ": token " +
                   std::to_string(position) + " came when token " + std::to_string(written) +
                   " of " + std::to_string(table->slots.size()) + " was due");
  }
  ++written;
  return table->slots[static_cast<size_t>(position)];
}

Status KvTables::ClaimAll(SequenceId sequence, int64_t num_tokens, StepId step) {
  LAMINA_ASSIGN_OR_RETURN(Table* const table, Find(sequence, step));
  std::ranges::fill(table->written, num_tokens);
  return OkStatus();
}

Result<std::span<const TokenSlot>> KvTables::Readable(int layer, SequenceId sequence,
                                                      int64_t num_tokens) const {
  LAMINA_ASSIGN_OR_RETURN(const Table* const table, Find(sequence));
  if (layer < 0 || layer >= num_layers_ || num_tokens < 0 ||
      num_tokens > table->written[static_cast<size_t>(layer)]) {
    return Corrupt(NameOf(sequence) + " layer " + std::to_string(layer) + ": attention over " +
                   std::to_string(num_tokens) + " tokens, but not all of them were written");
  }
  // No layer has more tokens written than the table has slots, so this many are there.
  return std::span<const TokenSlot>(table->slots).first(static_cast<size_t>(num_tokens));
}

}  // namespace lamina
