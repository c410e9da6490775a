#include "memory_node/attention_service.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/clock.h"
#include "base/log.h"

namespace lamina {

AttentionService::AttentionService(const WireShape& wire, float scale, uint64_t epoch, std::unique_ptr<KvDevice> store)
    : wire_(wire), attention_{wire.num_heads, wire.num_kv_heads, wire.head_dim, scale}, epoch_(epoch), store_(std::move(store)) {}

void AttentionService::Apply(const control::MemoryOrder& order) {
  const StepId step{order.step()};
  for (const uint64_t released : order.released()) store_->Release(SequenceId{released});
  StepRows rows;
  rows.batch = order.batch();
  const auto append = [&](SequenceId sequence, int64_t position, std::span<const TokenSlot> slots) {
    if (Status status = store_->Append(sequence, position, slots, step); !status.ok()) {
      LAMINA_LOG_ERROR("step {}: {}", step.value, status.ToString());
      store_->Release(sequence);
    }
  };
  for (const control::DecodeRow& row : order.decode()) {
    const TokenSlot slot = row.slot();
    if (row.has_slot()) append(SequenceId{row.sequence()}, row.num_stored(), {&slot, 1});
    rows.decode.push_back({SequenceId{row.sequence()}, row.num_stored(), row.has_slot()});
  }
  for (const control::PrefillChunk& chunk : order.prefill()) {
    append(SequenceId{chunk.sequence()}, chunk.num_stored(), {chunk.slots().data(), static_cast<size_t>(chunk.slots_size())});
    for (int i = 0; i < chunk.slots_size(); ++i) rows.prefill.push_back({SequenceId{chunk.sequence()}, chunk.num_stored() + i, true});
  }
  steps_[step] = std::move(rows);
  newest_step_ = std::max(newest_step_, step);
}

// Messages come in the order of their batch's steps.
void AttentionService::ForgetBefore(StepId step) {
  const auto now = steps_.find(step);
  if (now == steps_.end()) return;
  for (auto it = steps_.begin(); it != now;) it = it->second.batch == now->second.batch ? steps_.erase(it) : std::next(it);
}

bool AttentionService::IsStale(const MessageHeader& header) const {
  return header.epoch != epoch_ || (header.step <= newest_step_.value && !steps_.contains(StepId{header.step}));
}

Result<std::span<const AttentionService::Row>> AttentionService::RowsOf(const MessageHeader& header, bool prefill) const {
  const auto step = steps_.find(StepId{header.step});
  if (step == steps_.end()) return NotFound("no order for step " + std::to_string(header.step));
  const std::vector<Row>& rows = prefill ? step->second.prefill : step->second.decode;
  if (header.first_row > rows.size() || header.num_rows > rows.size() - header.first_row) {
    return Corrupt("step " + std::to_string(header.step) + ": rows " + std::to_string(header.first_row) + "+" +
                   std::to_string(header.num_rows) + " of " + std::to_string(rows.size()));
  }
  return std::span<const Row>(rows).subspan(header.first_row, header.num_rows);
}

Status AttentionService::Attend(const ReceivedMessage& message, std::span<const Row> rows, std::byte* out) {
  const int layer = static_cast<int>(message.header.layer);
  const size_t n = rows.size();
  const size_t q_bytes = wire_.q_row_bytes(), kv_bytes = wire_.kv_row_bytes();
  const auto num_stores = static_cast<size_t>(std::count_if(rows.begin(), rows.end(), [](const Row& row) { return row.stores; }));
  if (message.payload.size() != n * q_bytes + num_stores * 2 * kv_bytes)
    return Corrupt("decode payload of " + std::to_string(message.payload.size()) + " bytes");
  const std::byte* const q = message.payload.data();
  const std::byte* k = q + n * q_bytes;
  const std::byte* v = k + num_stores * kv_bytes;
  float* const lse = (message.header.flags & kWantsLse) != 0 ? reinterpret_cast<float*>(out + n * q_bytes) : nullptr;
  queries_.clear();
  for (size_t i = 0; i < n; ++i) {
    const StepId step{message.header.step};
    int64_t num_tokens = rows[i].num_stored;
    if (rows[i].stores) {
      LAMINA_RETURN_IF_ERROR(store_->WriteRaw(layer, rows[i].sequence, num_tokens++, k, v, step));
      k += kv_bytes;
      v += kv_bytes;
    }
    LAMINA_ASSIGN_OR_RETURN(const std::span<const TokenSlot> slots, store_->Readable(layer, rows[i].sequence, num_tokens));
    attended_tokens_ += num_tokens;
    float* const row_lse = lse == nullptr ? nullptr : lse + i * static_cast<size_t>(wire_.num_heads);
    queries_.push_back({q + i * q_bytes, slots, out + i * q_bytes, row_lse});
  }
  store_->Attend(attention_, layer, wire_.wire_dtype, queries_);
  return OkStatus();
}

size_t AttentionService::Decode(const ReceivedMessage& message, std::span<std::byte> reply, bool payload_checksum) {
  const TimePoint start = Clock::now();
  ForgetBefore(StepId{message.header.step});
  MessageHeader header{.kind = MessageKind::kReply,
                       .epoch = epoch_,
                       .step = message.header.step,
                       .layer = message.header.layer,
                       .first_row = message.header.first_row,
                       .num_rows = message.header.num_rows,
                       .number = message.header.number};
  const std::span<std::byte> payload = reply.subspan(sizeof(MessageHeader));
  size_t payload_bytes = 0;
  Status status;
  if (Result<std::span<const Row>> rows = RowsOf(message.header, /*prefill=*/false); rows.ok()) {
    payload_bytes = rows->size() * (wire_.q_row_bytes() + ((message.header.flags & kWantsLse) != 0 ? wire_.lse_row_bytes() : 0));
    status = Attend(message, *rows, payload.data());
  } else {
    status = rows.status();
  }
  if (!status.ok()) {
    header.status = static_cast<uint16_t>(status.code());
    payload_bytes = std::min<size_t>(status.message().size(), WireShape::kMaxErrorBytes);
    std::memcpy(payload.data(), status.message().data(), payload_bytes);
  }
  header = Seal(header, payload.first(payload_bytes), payload_checksum);
  std::memcpy(reply.data(), &header, sizeof(header));
  computed_rows_ += header.num_rows;
  ++attention_messages_;
  attention_us_ += std::chrono::duration_cast<microseconds>(Clock::now() - start).count();
  return sizeof(header) + payload_bytes;
}

Status AttentionService::Push(const ReceivedMessage& message) {
  ForgetBefore(StepId{message.header.step});
  LAMINA_ASSIGN_OR_RETURN(const std::span<const Row> rows, RowsOf(message.header, /*prefill=*/true));
  const size_t width_bytes = wire_.kv_row_bytes();
  if (message.payload.size() != rows.size() * 2 * width_bytes)
    return Corrupt("push payload of " + std::to_string(message.payload.size()) + " bytes");
  const std::byte* k = message.payload.data();
  const std::byte* v = k + rows.size() * width_bytes;
  Status result;
  for (size_t i = 0; i < rows.size(); ++i) {
    Status status = store_->WriteRaw(static_cast<int>(message.header.layer), rows[i].sequence, rows[i].num_stored, k + i * width_bytes,
                                     v + i * width_bytes, StepId{message.header.step});
    if (!status.ok() && result.code() != StatusCode::kCorrupt) result = status;
  }
  return result;
}

control::Stats AttentionService::stats() const {
  control::Stats stats;
  stats.set_epoch(epoch_);
  stats.set_capacity_tokens(store_->capacity_tokens());
  stats.set_used_tokens(store_->used_tokens());
  stats.set_num_sequences(store_->num_sequences());
  stats.set_attention_rows(computed_rows_);
  stats.set_attention_us(attention_us_);
  stats.set_stale_messages(stale_messages_);
  stats.set_attention_messages(attention_messages_);
  stats.set_attended_tokens(attended_tokens_);
  return stats;
}

}  // namespace lamina
