#include "memory_node/attention_service.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "cost/overlap.h"

namespace lamina {

AttentionService::AttentionService(const WireShape& wire, const ScoreRules& rules, uint64_t epoch,
                                   KvState kv)
    : wire_(wire),
      attention_{wire.num_heads, wire.num_kv_heads, wire.head_dim, rules.scale, rules.soft_cap},
      device_(std::move(kv.device)),
      cache_(device_->cache()),
      slots_(cache_, rules.windows, std::move(kv.positions), std::move(kv.scattered)),
      before_last_step_(std::move(kv.before_last_step)),
      steps_(epoch, times_) {}

KvState AttentionService::TakeKv() {
  ahead_.reset();  // borrows the device
  return {std::move(device_), slots_.TakePositions(), slots_.TakeScattered(),
          std::move(before_last_step_)};
}

std::vector<LeftSequence> AttentionService::Left() const {
  std::vector<LeftSequence> left = slots_.Left();
  for (LeftSequence& one : left) {
    const auto found = before_last_step_.find(one.sequence);
    if (found != before_last_step_.end() && found->second < std::ssize(one.slots))
      one.slots.resize(static_cast<size_t>(found->second));
  }
  std::erase_if(left, [](const LeftSequence& one) { return one.slots.empty(); });
  return left;
}

void AttentionService::Use(std::unique_ptr<AheadAttention> ahead) {
  ahead_ = std::move(ahead);
  steps_.AwaitPushes(ahead_->num_layers());
}

void AttentionService::Apply(const MemoryOrder& order) {
  const StepId step = order.step;
  for (const SequenceId released : order.released) before_last_step_.erase(released);
  if (order.batch >= static_cast<uint32_t>(wire_.num_batches) ||
      std::ssize(order.decode) > wire_.max_rows) {
    LAMINA_LOG_ERROR("step {}: an order of {} rows for batch {}, where there are {} of {}",
                     step.value, order.decode.size(), order.batch, wire_.num_batches,
                     wire_.max_rows);
    return;
  }
  slots_.Apply(order);
  if (order.layers_inside != 0) {
    // Where these are not the layers that the manager takes them for, its next orders are refused.
    if (const Status set = cache_.SetLayersInside(order.layers_inside); !set.ok())
      LAMINA_LOG_ERROR("step {}: {}", step.value, set.message());
  }
  steps_.Add(order);
  if (ahead_ == nullptr || order.decode.empty()) return;
  to_ask_.push_back(step);
  AskAhead();
}

void AttentionService::AskAhead() {
  std::erase_if(to_ask_, [this](StepId step) { return AskAhead(step); });
}

// Pushes come to this host and decode messages to the device, so nothing orders the two: an order
// can be here before the pushes of earlier steps whose K and V it reads. Shared prefixes need no
// such care: a prefix is offered only after a complete step has attended to it, so its K and V are
// in its slots.
bool AttentionService::AskAhead(StepId id) {
  const OrderedSteps::Step* const step = steps_.Find(id);
  if (step == nullptr) return true;
  const Result<AheadStep> ahead = CollectAhead(*step, id);
  // kCorrupt means that tokens are missing. While pushes of earlier steps are under way, they may
  // still come; afterwards the step is refused.
  if (ahead.status().code() == StatusCode::kCorrupt && !steps_.AllPushedBefore(id)) return false;
  steps_.ForgetBefore(id);
  const int num_layers = ahead_->num_layers();
  attention_messages_ += num_layers;
  computed_rows_ += std::ssize(step->decode) * num_layers;
  if (!ahead.ok()) {
    LAMINA_LOG_ERROR("step {}: {}", id.value, ahead.status().ToString());
    AheadStep refused;
    refused.id = id;
    refused.batch = static_cast<int>(step->batch);
    const std::vector<OrderedRow>& rows = step->decode;
    refused.stored.resize(static_cast<size_t>(std::ranges::count_if(rows, &OrderedRow::stores)));
    ahead_->Refuse(refused, rows.size(), ahead.status());
    return true;
  }
  for (const int kind : ahead->kind_of_layer) {
    for (const std::span<const TokenSlot> slots : ahead->tables[static_cast<size_t>(kind)])
      attended_tokens_ += std::ssize(slots);
  }
  ahead_->Attend(*ahead);
  return true;
}

// It looks at the last layer only: a prompt's K and V come layer by layer, so what was written
// there was written in all layers.
Result<AheadStep> AttentionService::CollectAhead(const OrderedSteps::Step& step, StepId id) {
  const int num_layers = ahead_->num_layers();
  AheadStep ahead;
  ahead.id = id;
  ahead.batch = static_cast<int>(step.batch);
  std::vector<AttentionWindow> kinds;  // the different windows
  for (int layer = 0; layer < num_layers; ++layer) {
    const AttentionWindow window = slots_.window(static_cast<uint32_t>(layer));
    const auto kind = std::ranges::find(kinds, window);
    ahead.kind_of_layer.push_back(static_cast<int>(kind - kinds.begin()));
    if (kind == kinds.end()) kinds.push_back(window);
  }
  ahead.tables.resize(kinds.size());
  std::optional<SequenceId> last;
  for (const OrderedRow& row : step.decode) {
    if (row.stores && last != row.sequence) before_last_step_[row.sequence] = row.num_stored;
    last = row.sequence;
    LAMINA_ASSIGN_OR_RETURN(std::span<const TokenSlot> slots,
                            cache_.Readable(num_layers - 1, row.sequence, row.num_stored));
    if (row.stores) {
      LAMINA_ASSIGN_OR_RETURN(slots, ahead_->Claim(row.sequence, row.num_stored + 1, id));
    }
    if (row.stores) ahead.stored.push_back(slots.back());
    for (size_t kind = 0; kind < kinds.size(); ++kind)
      ahead.tables[kind].push_back(slots_.InWindow(kinds[kind], row, slots));
  }
  return ahead;
}

Result<std::span<const TokenSlot>> AttentionService::Store(const MessageHeader& header,
                                                           const OrderedRow& row,
                                                           const std::byte* k, const std::byte* v) {
  if (!row.stores) return slots_.Attended(header.layer, row, row.num_stored);
  LAMINA_RETURN_IF_ERROR(cache_.WriteRaw(static_cast<int>(header.layer), row.sequence,
                                         row.num_stored, k, v, StepId{header.step}));
  return slots_.Attended(header.layer, row, row.num_stored + 1);
}

// An output of zeros with a log-sum-exp of minus infinity is attention over no tokens, which adds
// nothing when it is merged.
void AttentionService::Fail(const MessageHeader& header, size_t row, const Status& why,
                            std::byte* out, FailedRows& failed) const {
  failed.Add(row, why);
  std::memset(out + row * wire_.q_row_bytes(), 0, wire_.q_row_bytes());
  if ((header.flags & kWantsLse) == 0) return;
  std::fill_n(Lse(header, row, out), wire_.num_heads, -std::numeric_limits<float>::infinity());
}

Status AttentionService::Attend(const ReceivedMessage& message, std::span<const OrderedRow> rows,
                                std::byte* out, FailedRows& failed) {
  const int layer = static_cast<int>(message.header.layer);
  const size_t n = rows.size();
  const size_t q_bytes = wire_.q_row_bytes(), kv_bytes = wire_.kv_row_bytes();
  const auto num_stores = static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](const OrderedRow& row) { return row.stores; }));
  if (message.payload.size() != n * q_bytes + num_stores * 2 * kv_bytes)
    return Corrupt("decode payload of " + std::to_string(message.payload.size()) + " bytes");
  const std::byte* const q = message.payload.data();
  const std::byte* k = q + n * q_bytes;
  const std::byte* v = k + num_stores * kv_bytes;
  const bool wants_lse = (message.header.flags & kWantsLse) != 0;
  queries_.clear();
  for (size_t i = 0; i < n; ++i) {
    const Result<std::span<const TokenSlot>> slots = Store(message.header, rows[i], k, v);
    k += rows[i].stores ? kv_bytes : 0;
    v += rows[i].stores ? kv_bytes : 0;
    if (!slots.ok()) {
      Fail(message.header, i, slots.status(), out, failed);
      continue;
    }
    attended_tokens_ += std::ssize(*slots);
    float* const lse = wants_lse ? Lse(message.header, i, out) : nullptr;
    queries_.push_back({q + i * q_bytes, *slots, out + i * q_bytes, lse});
  }
  device_->Attend(attention_, layer, wire_.wire_dtype, queries_);
  return OkStatus();
}

// Every reply area has room for log-sum-exps, whether they are wanted or not.
float* AttentionService::Lse(const MessageHeader& header, size_t row, std::byte* out) const {
  return reinterpret_cast<float*>(out + header.num_rows * wire_.q_row_bytes() +
                                  row * wire_.lse_row_bytes());
}

AttentionService::Reply AttentionService::Decode(const ReceivedMessage& message,
                                                 std::span<std::byte> out) {
  const TimePoint start = Clock::now();
  times_.BeginWork();
  steps_.ForgetBefore(StepId{message.header.step});
  const Result<std::span<const OrderedRow>> rows = steps_.RowsOf(message.header);
  FailedRows failed;
  const Status status = rows.ok() ? Attend(message, *rows, out.data(), failed) : rows.status();
  attention_us_ += std::chrono::duration_cast<microseconds>(Clock::now() - start).count();
  return Answer({message.header, status, failed}, out);
}

AttentionService::Reply AttentionService::Answer(Outcome answer, std::span<std::byte> out) {
  const MessageHeader& asked = answer.asked;
  Status& status = answer.status;
  const size_t num_failed = answer.failed.rows.size();
  // If no row has an output, the whole message has failed: a status says so in fewer bytes.
  if (status.ok() && num_failed > 0 && num_failed == asked.num_rows) status = answer.failed.why;
  MessageHeader header{.status = static_cast<uint16_t>(status.code()),
                       .step = asked.step,
                       .layer = asked.layer,
                       .first_row = asked.first_row,
                       .num_rows = asked.num_rows};
  size_t bytes = asked.num_rows * (wire_.q_row_bytes() +
                                   ((asked.flags & kWantsLse) != 0 ? wire_.lse_row_bytes() : 0));
  if (!status.ok()) {
    bytes = std::min<size_t>(status.message().size(), WireShape::kMaxErrorBytes);
    std::memcpy(out.data(), status.message().data(), bytes);
  } else if (num_failed > 0) {
    header.flags |= kFailedRows;
    bytes += answer.failed.Write(out.subspan(bytes));
  }
  if ((asked.flags & kLastLayer) != 0) steps_.FinishDecode(StepId{header.step});
  const ReplyTimes times = times_.Take(answer.attended_before_ns);
  if ((asked.flags & kTimes) != 0) {
    header.flags |= kTimes;
    std::memcpy(out.data() + bytes, &times, sizeof(times));
    bytes += sizeof(times);
  }
  computed_rows_ += header.num_rows;
  ++attention_messages_;
  times_.EndWork();
  return {header, bytes};
}

AttentionService::Begun AttentionService::Begin(const ReceivedMessage& queries,
                                                std::span<std::byte> out) {
  const TimePoint start = Clock::now();
  times_.BeginWork();
  steps_.ForgetBefore(StepId{queries.header.step});
  Begun begun;
  begun.queries = queries;
  begun.status = AttendStored(begun, out.data());
  attention_us_ += std::chrono::duration_cast<microseconds>(Clock::now() - start).count();
  begun.attended_ns = times_.EndWork();
  return begun;
}

AttentionService::Reply AttentionService::End(Begun& begun, const ReceivedMessage& keys_values,
                                              std::span<std::byte> out,
                                              const PostEarly& post_early) {
  const TimePoint start = Clock::now();
  times_.BeginWork();
  if (begun.status.ok()) begun.status = AttendRest(begun, keys_values, out.data(), post_early);
  // If no row has an output, Answer writes an error message over outputs that were posted, so these
  // bytes have to be posted again.
  if (!begun.status.ok() || begun.failed.rows.size() == begun.queries.header.num_rows)
    begun.early_bytes = 0;
  attention_us_ += std::chrono::duration_cast<microseconds>(Clock::now() - start).count();
  return Answer({begun.queries.header, begun.status, begun.failed, begun.attended_ns}, out);
}

Status AttentionService::AttendStored(Begun& begun, std::byte* out) {
  const ReceivedMessage& message = begun.queries;
  LAMINA_ASSIGN_OR_RETURN(const std::span<const OrderedRow> rows, steps_.RowsOf(message.header));
  const size_t q_bytes = wire_.q_row_bytes();
  if (message.payload.size() != rows.size() * q_bytes)
    return Corrupt("payload of queries of " + std::to_string(message.payload.size()) + " bytes");
  begun.num_rows = static_cast<size_t>(RowsBegunEarly(std::ssize(rows)));
  queries_.clear();
  for (size_t i = 0; i < begun.num_rows; ++i) {
    // If nothing of the sequence was stored here before the step, the row attends to no slots: its
    // output is 0 and its log-sum-exp minus infinity until k and v come.
    std::span<const TokenSlot> slots;
    if (rows[i].num_before > 0) {
      const Result<std::span<const TokenSlot>> stored =
          slots_.Attended(message.header.layer, rows[i], rows[i].num_before);
      if (!stored.ok()) {
        Fail(message.header, i, stored.status(), out, begun.failed);
        continue;
      }
      slots = *stored;
    }
    attended_tokens_ += std::ssize(slots);
    queries_.push_back({message.payload.data() + i * q_bytes, slots, out + i * q_bytes,
                        Lse(message.header, i, out)});
  }
  device_->Attend(attention_, static_cast<int>(message.header.layer), wire_.wire_dtype, queries_);
  return OkStatus();
}

Status AttentionService::AttendRest(Begun& begun, const ReceivedMessage& keys_values,
                                    std::byte* out, const PostEarly& post_early) {
  const MessageHeader& header = begun.queries.header;
  const MessageHeader& second = keys_values.header;
  if (std::tie(header.epoch, header.step, header.layer, header.first_row, header.num_rows,
               header.flags, header.number) != std::tie(second.epoch, second.step, second.layer,
                                                        second.first_row, second.num_rows,
                                                        second.flags, second.number))
    return Corrupt("k and v of step " + std::to_string(second.step) + " layer " +
                   std::to_string(second.layer) + " behind q of step " +
                   std::to_string(header.step) + " layer " + std::to_string(header.layer));
  LAMINA_ASSIGN_OR_RETURN(const std::span<const OrderedRow> rows, steps_.RowsOf(header));
  const int layer = static_cast<int>(header.layer);
  const size_t q_bytes = wire_.q_row_bytes(), kv_bytes = wire_.kv_row_bytes();
  const auto num_stores = static_cast<size_t>(
      std::count_if(rows.begin(), rows.end(), [](const OrderedRow& row) { return row.stores; }));
  if (keys_values.payload.size() != num_stores * 2 * kv_bytes)
    return Corrupt("payload of k and v of " + std::to_string(keys_values.payload.size()) +
                   " bytes");
  const std::byte* k = keys_values.payload.data();
  queries_.clear();
  std::vector<KvQuery>& rest = rest_;
  rest.clear();
  const FailedRows failed_before = begun.failed;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::byte* const row_k = k;
    k += rows[i].stores ? kv_bytes : 0;
    const bool was_begun = i < begun.num_rows;
    // A row that was begun and stores nothing here is complete; one that failed has no output.
    if (was_begun && (!rows[i].stores || failed_before.Has(i))) continue;
    const Result<std::span<const TokenSlot>> attended =
        Store(header, rows[i], row_k, row_k + num_stores * kv_bytes);
    if (!attended.ok()) {
      Fail(header, i, attended.status(), out, begun.failed);
      continue;
    }
    std::span<const TokenSlot> slots = *attended;
    const int64_t num_tokens = rows[i].num_stored + (rows[i].stores ? 1 : 0);
    // Begin has attended to the tokens before the step, as far as they are in the window. What is
    // left are those of the step, which are the last ones.
    if (was_begun)
      slots = slots.last(
          static_cast<size_t>(std::min(std::ssize(slots), num_tokens - rows[i].num_before)));
    attended_tokens_ += std::ssize(slots);
    (was_begun ? queries_ : rest)
        .push_back({begun.queries.payload.data() + i * q_bytes, slots, out + i * q_bytes,
                    Lse(header, i, out)});
  }
  if (!queries_.empty()) device_->AttendMore(attention_, layer, wire_.wire_dtype, queries_);
  // Posting early gains nothing if there is nothing left to compute.
  if (rest.empty()) return OkStatus();
  const size_t early_bytes = begun.num_rows * q_bytes;
  if (early_bytes > 0 && post_early(early_bytes)) begun.early_bytes = early_bytes;
  device_->Attend(attention_, layer, wire_.wire_dtype, rest);
  return OkStatus();
}

Status AttentionService::Push(const ReceivedMessage& message) {
  steps_.ForgetBefore(StepId{message.header.step});
  LAMINA_ASSIGN_OR_RETURN(const std::span<const OrderedRow> rows, steps_.RowsOf(message.header));
  const Status stored = StorePushed(message, rows);
  steps_.CountPushed(StepId{message.header.step}, std::ssize(rows));
  if (ahead_ != nullptr) AskAhead();
  return stored;
}

Status AttentionService::StorePushed(const ReceivedMessage& message,
                                     std::span<const OrderedRow> rows) {
  const size_t width_bytes = wire_.kv_row_bytes();
  if (message.payload.size() != rows.size() * 2 * width_bytes)
    return Corrupt("push payload of " + std::to_string(message.payload.size()) + " bytes");
  const std::byte* k = message.payload.data();
  const std::byte* v = k + rows.size() * width_bytes;
  Status result;
  for (size_t i = 0; i < rows.size(); ++i) {
    Status status = cache_.WriteRaw(static_cast<int>(message.header.layer), rows[i].sequence,
                                    rows[i].num_stored, k + i * width_bytes, v + i * width_bytes,
                                    StepId{message.header.step});
    // kCorrupt is worse than kNotFound, so it is what the caller hears of.
    if (!status.ok() && result.code() != StatusCode::kCorrupt) result = status;
  }
  return result;
}

MemoryStats AttentionService::stats() const {
  return {.epoch = steps_.epoch(),
          .capacity_tokens = cache_.capacity_tokens(),
          .used_tokens = cache_.used_tokens(),
          .num_sequences = cache_.num_sequences(),
          .attention_rows = computed_rows_,
          .attention_us = ahead_ != nullptr ? ahead_->attention_us() : attention_us_,
          .stale_messages = stale_messages_,
          .attention_messages = attention_messages_,
          .attended_tokens = attended_tokens_};
}

}  // namespace lamina
