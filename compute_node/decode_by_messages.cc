#include "compute_node/decode_by_messages.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

namespace lamina {

uint16_t DecodeByMessages::Flags() const {
  const bool times = session_.trace != nullptr && session_.trace->on();
  const bool is_last = step_.layer.layer == session_.options.num_layers - 1;
  return static_cast<uint16_t>((rows_.wants_lse() ? kWantsLse : 0) | (times ? kTimes : 0) |
                               (is_last ? kLastLayer : 0));
}

void DecodeByMessages::MarkPosted() {
  posted_ns_ = session_.trace != nullptr ? session_.trace->Now() : 0;
  on_our_clock_ = true;
}

void DecodeByMessages::SendQueries() {
  std::byte* const begin = peer_.lanes().payload(MessageKind::kQueries, step_.batch).data();
  const PackedParts q{step_.layer.q, rows_.Heads(rows_.decode()), peer_.wire().wire_dtype};
  const auto bytes = static_cast<size_t>(session_.device.Pack({&q, 1}, begin) - begin);
  Post(MessageKind::kQueries, bytes);
}

void DecodeByMessages::Send() {
  std::byte* const begin = peer_.lanes().payload(MessageKind::kDecode, step_.batch).data();
  const WireShape& wire = peer_.wire();
  const RowParts stored = rows_.KvHeads(rows_.stored());
  const std::array<PackedParts, 3> qkv = {
      PackedParts{step_.layer.q, rows_.Heads(rows_.decode()), wire.wire_dtype},
      PackedParts{step_.layer.k, stored, wire.kv_dtype, wire.head_dim},
      PackedParts{step_.layer.v, stored, wire.kv_dtype, wire.head_dim}};
  // With overlap q was sent before, by SendQueries.
  const std::span<const PackedParts> packed = std::span(qkv).subspan(wire.overlap ? 1 : 0);
  const auto bytes = static_cast<size_t>(session_.device.Pack(packed, begin) - begin);
  Post(MessageKind::kDecode, bytes);
}

void DecodeByMessages::Post(MessageKind kind, size_t payload_bytes) {
  MessageHeader header = step_.Header(0, rows_.decode().size());
  header.flags = Flags();
  header.reply_to = static_cast<uint16_t>(step_.taker.value);
  if (kind == MessageKind::kQueries || !peer_.wire().overlap) MarkPosted();
  const Status posted = peer_.lanes().Post(kind, step_.batch, header, payload_bytes);
  if (!posted.ok()) return peer_.Lose(posted.message());
  if (kind == MessageKind::kDecode) expects_ = step_.taker == NodeId{};
  step_.traffic.sent_bytes += static_cast<int64_t>(sizeof(header) + payload_bytes);
}

void DecodeByMessages::Expect(const AskedNode& asked) {
  expects_ = true;
  posted_ns_ = asked.posted_ns;
  on_our_clock_ = asked.on_our_clock;
}

bool DecodeByMessages::missing() const {
  return expects_ && !peer_.lost() && !peer_.lanes().arrived(MessageKind::kReply, step_.batch);
}

void DecodeByMessages::Take() {
  if (std::exchange(expects_, false) && !peer_.lost()) ReadReply();
}

// The lane knows which message it is; what it is about is compared here.
Result<ReceivedMessage> DecodeByMessages::TakeReply() {
  LAMINA_ASSIGN_OR_RETURN(const ReceivedMessage message,
                          peer_.lanes().Take(MessageKind::kReply, step_.batch));
  const MessageHeader& header = message.header;
  const auto layer = static_cast<uint32_t>(step_.layer.layer);
  if (std::tuple(header.epoch, header.step, header.layer) !=
      std::tuple(session_.options.epoch, step_.id.value, layer)) {
    return Corrupt("answered step " + std::to_string(header.step) + " layer " +
                   std::to_string(header.layer) + " when step " + std::to_string(step_.id.value) +
                   " layer " + std::to_string(layer) + " was asked");
  }
  return message;
}

void DecodeByMessages::ReadReply() {
  StepTrace* const trace = session_.trace;
  const int64_t start_ns = trace != nullptr ? trace->Now() : 0;
  Result<ReceivedMessage> reply = TakeReply();
  if (!reply.ok()) return peer_.Lose(reply.status().message());
  step_.traffic.received_bytes +=
      static_cast<int64_t>(sizeof(MessageHeader) + reply->payload.size());
  const std::optional<ReplyTimes> times =
      (reply->header.flags & kTimes) != 0 ? CutReplyTimes(reply->payload) : std::nullopt;
  if (reply->header.status == 0) {
    if ((reply->header.flags & kFailedRows) != 0 && !TakeFailedRows(reply->payload)) return;
    TakeOutputs(reply->payload);
  } else {
    const std::string text(reinterpret_cast<const char*>(reply->payload.data()),
                           reply->payload.size());
    const Status status(static_cast<StatusCode>(reply->header.status),
                        "memory node " + peer_.name() + ": " + text);
    for (const int row : rows_.decode()) step_.Fail(row, status);
  }
  if (trace == nullptr) return;
  const TracedWork traced = step_.Traced(rows_.decode().size());
  if (times && on_our_clock_) trace->Answered(peer_.address().node, traced, posted_ns_, *times);
  if (times && !on_our_clock_) trace->AnsweredAnother(peer_.address().node, *times);
  trace->Ran(StepWork::kTake, traced, start_ns);
}

bool DecodeByMessages::TakeFailedRows(std::span<const std::byte>& payload) {
  const std::vector<int>& rows = rows_.decode();
  const size_t output_bytes = std::min(rows_.OutputBytes(), payload.size());
  const Result<FailedRows> failed = FailedRows::Read(payload.subspan(output_bytes), rows.size());
  if (!failed.ok()) {
    peer_.Lose(failed.status().message());
    return false;
  }
  const Status why = failed->why.WithContext("memory node " + peer_.name());
  for (const uint32_t row : failed->rows) step_.Fail(rows[row], why);
  payload = payload.first(output_bytes);
  return true;
}

void DecodeByMessages::TakeOutputs(std::span<const std::byte> payload) {
  if (payload.size() != rows_.OutputBytes())
    return peer_.Lose("answered with another number of rows than asked");
  rows_.ForEachWhole([&](size_t offset, const RowParts& whole) {
    session_.device.Unpack(payload.data() + offset, peer_.wire().wire_dtype, whole,
                           step_.layer.out);
  });
  if (rows_.wants_lse()) rows_.MergeOthers(payload, step_.partials);
}

}  // namespace lamina
