#include "memory_node/sequence_slots.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>

#include "base/log.h"
#include "transport/control_channel.h"

namespace lamina {
namespace {

// Each takes at most five bytes of a message.
constexpr int64_t kMostLeftSlots = kMaxFrameBytes / 8;

}  // namespace

void SequenceSlots::Apply(const MemoryOrder& order) {
  const StepId step = order.step;
  // Releases take effect before the rows: a sequence that was preempted begins anew at position 0.
  for (const SequenceId released : order.released) Release(released);
  for (const SharedPrefix& shared : order.shared)
    Append({shared.sequence, 0, shared.slots, 0, NewTokens::Kv::kShared}, step);
  for (const DecodeRow& row : order.decode) {
    if (!row.slot) continue;
    if (row.again) cache_.Truncate(row.sequence, row.num_stored);
    Append({row.sequence, row.num_stored, {&*row.slot, 1}, row.position}, step);
  }
  const auto kv = order.dummy_prefill ? NewTokens::Kv::kMadeUp : NewTokens::Kv::kComes;
  for (const PrefillChunk& chunk : order.prefill)
    Append({chunk.sequence, chunk.num_stored, chunk.slots, chunk.first_position, kv}, step);
}

std::vector<SequenceId> SequenceSlots::Keep(std::span<const HeldSequence> held) {
  std::map<SequenceId, int64_t> kept;
  for (const auto& [sequence, num_tokens] : held) kept[sequence] = num_tokens;
  for (const SequenceId sequence : cache_.sequences()) {
    const auto found = kept.find(sequence);
    if (found == kept.end() || found->second < 1 || cache_.NumWritten(sequence) < found->second) {
      Release(sequence);
      continue;
    }
    cache_.Truncate(sequence, found->second);
    kept.erase(found);
  }
  std::vector<SequenceId> missing;
  for (const auto& [sequence, num_tokens] : kept) missing.push_back(sequence);
  return missing;
}

std::vector<LeftSequence> SequenceSlots::Left() const {
  std::vector<SequenceId> sequences = cache_.sequences();
  std::ranges::sort(sequences);
  std::vector<LeftSequence> left;
  int64_t num_slots = 0;
  for (const SequenceId sequence : sequences) {
    const int64_t num_written = cache_.NumWritten(sequence);
    if (num_written == 0 || scattered_.contains(sequence)) continue;
    if ((num_slots += num_written) > kMostLeftSlots) break;
    const Result<std::span<const TokenSlot>> slots = cache_.Readable(0, sequence, num_written);
    if (slots.ok()) left.push_back({sequence, {slots->begin(), slots->end()}});
  }
  return left;
}

Result<std::span<const TokenSlot>> SequenceSlots::Attended(uint32_t layer, const OrderedRow& row,
                                                           int64_t num_tokens) const {
  LAMINA_ASSIGN_OR_RETURN(const std::span<const TokenSlot> slots,
                          cache_.Readable(static_cast<int>(layer), row.sequence, num_tokens));
  return InWindow(window(layer), row, slots);
}

std::span<const TokenSlot> SequenceSlots::InWindow(const AttentionWindow& window,
                                                   const OrderedRow& row,
                                                   std::span<const TokenSlot> slots) const {
  if (row.position < 0) return slots;  // nothing is known of what an order says
  const int64_t first = window.First(row.position);
  if (first == 0) return slots;
  return slots.subspan(
      static_cast<size_t>(positions_.NumBefore(row.sequence, first, std::ssize(slots))));
}

void SequenceSlots::Append(const NewTokens& tokens, StepId step) {
  const auto& [sequence, num_stored, slots, first_position, kv] = tokens;
  Status status = kv == NewTokens::Kv::kShared ? cache_.Share(sequence, slots, step)
                  : kv == NewTokens::Kv::kMadeUp
                      ? cache_.AppendDummy(sequence, num_stored, slots, step)
                      : cache_.Append(sequence, num_stored, slots, step);
  if (status.ok() && first_position < 0)
    status = Corrupt("a token at position " + std::to_string(first_position));
  if (!status.ok()) {
    LAMINA_LOG_ERROR("step {}: {}", step.value, status.ToString());
    // Every later message about the sequence then gets kNotFound, and no attention is computed over
    // a table with a gap.
    Release(sequence);
    return;
  }
  if (first_position != num_stored) scattered_.insert(sequence);
  if (!windows_.empty()) positions_.Append(sequence, num_stored, first_position);
}

void SequenceSlots::Release(SequenceId sequence) {
  cache_.Release(sequence);
  positions_.Release(sequence);
  if (!scattered_.empty()) scattered_.erase(sequence);
}

}  // namespace lamina
