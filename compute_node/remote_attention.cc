#include "compute_node/remote_attention.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/backoff.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"

namespace lamina {
namespace {

// How long a wait for room polls before it sleeps.
constexpr auto kRoomPatience = microseconds(200);

// How often to look at what a device has done: it wakes nobody.
constexpr auto kDeviceInterval = microseconds(100);

std::string Milliseconds(Clock::duration duration) {
  return std::to_string(std::chrono::duration_cast<milliseconds>(duration).count()) + " ms";
}

}  // namespace

Result<std::unique_ptr<RemoteAttention>> RemoteAttention::Create(
    const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
    const std::vector<MemoryNodeAddress>& addresses, ComputeDevice& device, Deadline deadline) {
  const int num_own_layers = options.own_layers.end > 0
                                 ? options.own_layers.end - options.own_layers.first
                                 : options.num_layers;
  const KvShape shape{std::max(num_own_layers, 1), options.wire.num_kv_heads, options.wire.head_dim,
                      options.wire.kv_dtype};
  std::vector<int64_t> windows;  // of the layers that run on this node
  if (!options.windows.empty())
    windows.assign(options.windows.begin() + options.own_layers.first, options.windows.end());
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<PrefillKv> prefill,
      PrefillKv::Create(device, options.attention, shape, windows, options.prefill_cache_tokens));
  std::unique_ptr<RemoteAttention> attention(
      new RemoteAttention(options, std::move(ladder), std::move(prefill), device));
  const DataPathOptions path{{options.epoch, options.self.value, options.session_token},
                             options.payload_checksum,
                             options.polling};
  for (const MemoryNodeAddress& address : addresses) {
    WireShape wire = options.wire;
    wire.num_kv_heads = address.num_kv_heads;
    wire.num_heads = address.num_kv_heads * options.attention.group();
    Result<std::unique_ptr<DeviceLink>> link = Unimplemented("so they were told");
    if (options.polling != PollingMode::kHost) link = device.MakeLink(wire, options.peer_timeout);
    LAMINA_ASSIGN_OR_RETURN(
        std::unique_ptr<MemoryPeer> peer,
        MemoryPeer::Connect(address, wire, path, std::move(link), *attention->ladder_, deadline));
    attention->peers_.push_back({std::move(peer), false, false});
  }
  for (Batch& batch : attention->batches_) batch.by_peer.resize(addresses.size());
  return attention;
}

RemoteAttention::RemoteAttention(const RemoteAttentionOptions& options,
                                 std::shared_ptr<Ladder> ladder, std::unique_ptr<PrefillKv> prefill,
                                 ComputeDevice& device)
    : options_(options),
      device_(device),
      ladder_(std::move(ladder)),
      batches_(static_cast<size_t>(options.wire.num_batches)),
      prefill_(std::move(prefill)) {
  for (size_t i = 0; i < batches_.size(); ++i) batches_[i].number = static_cast<int>(i);
}

void RemoteAttention::BeginStep(int number, StepId step, std::span<const AttentionWork> rows) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  batch.step = step;
  batch.rows = rows;
  batch.failures.clear();
  batch.traffic = {};
  batch.partial.clear();
  batch.first_prefill = static_cast<size_t>(
      std::find_if(rows.begin(), rows.end(), [](const AttentionWork& row) { return row.prefill; }) -
      rows.begin());
  for (PeerRows& of_peer : batch.by_peer) {
    of_peer.decode.clear();
    of_peer.decode_rows.clear();
    of_peer.stored_rows.clear();
    of_peer.prefill.clear();
    of_peer.wants_lse = false;
    of_peer.linked = PeerRows::Linked::kIdle;
  }
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    const AttentionWork& row = rows[static_cast<size_t>(i)];
    if (!row.prefill && !row.also_on.empty()) batch.partial.push_back(i);
    AddRow(batch, i, row.node);
    for (const NodeId node : row.also_on) AddRow(batch, i, node);
  }
  prefill_->Begin(step, rows.subspan(batch.first_prefill), batch.failures);
}

// Rows that have failed are entered too: the memory nodes that live have them in their order, and
// messages number the rows as the order does.
void RemoteAttention::AddRow(Batch& batch, int row, NodeId node) {
  const AttentionWork& work = batch.rows[static_cast<size_t>(row)];
  bool found = false;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peer(i).address().group != node) continue;
    found = true;
    PeerRows& rows = batch.by_peer[i];
    if (peer(i).lost()) {
      FailRow(batch, row, PeerLost("memory node " + peer(i).name() + " is lost: " + peer(i).why()));
    } else if (work.prefill) {
      rows.prefill.push_back(row);
    } else {
      rows.decode.push_back({row, node == work.node, work.also_on.empty()});
      rows.decode_rows.push_back(row);
      if (rows.decode.back().stores) rows.stored_rows.push_back(row);
      rows.wants_lse |= !work.also_on.empty();
    }
  }
  if (!found) FailRow(batch, row, PeerLost("no such memory node"));
}

void RemoteAttention::StartQueries(NodeId taker, int number, int layer, const float* q) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  batch.layer = layer;
  batch.q = q;
  batch.sent_queries = true;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!peer(i).lost() && !batch.by_peer[i].decode.empty() && peer(i).link() == nullptr)
      SendQueries(batch, i, taker);
  }
}

void RemoteAttention::Start(int number, int layer, const float* q, const float* k, const float* v,
                            float* out) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  BeginLayer(batch, layer, out);
  SendRows(batch, NodeId{}, q, k, v);
  batch.posted = batch.started = Clock::now();
}

std::span<const AskedNode> RemoteAttention::StartFor(NodeId taker, int number, int layer,
                                                     const float* q, const float* k, const float* v,
                                                     float* out) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  BeginLayer(batch, layer, out);
  asked_.clear();
  SendRows(batch, taker, q, k, v);
  AwaitPushes(number);
  return asked_;
}

// Whoever decodes these tokens may do it over another connection, which messages on this one do not
// hold up.
void RemoteAttention::AwaitPushes(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!batch.by_peer[i].prefill.empty())
      WaitFor(batch, i, "the end of a push", [&] { return !peer(i).pushing(); });
  }
}

void RemoteAttention::Expect(int number, int layer, float* out, std::span<const AskedNode> asked) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  BeginLayer(batch, layer, out);
  batch.posted = batch.started = Clock::now();
  for (size_t i = 0; i < peers_.size(); ++i) {
    const auto found = std::ranges::find(asked, peer(i).address().node, &AskedNode::node);
    if (found == asked.end()) continue;
    peer(i).ExpectReply(number);
    batch.by_peer[i].posted_ns = found->posted_ns;
    batch.by_peer[i].on_our_clock = found->on_our_clock;
    if (found->on_our_clock && found->posted_ns > 0)
      batch.posted = std::min(batch.posted, TimePoint(std::chrono::nanoseconds(found->posted_ns)));
  }
}

void RemoteAttention::BeginLayer(Batch& batch, int layer, float* out) const {
  batch.layer = layer;
  batch.out = out;
  batch.merged.resize(batch.partial.size() * options_.wire.q_row_elements());
  batch.lse.assign(batch.partial.size() * static_cast<size_t>(options_.attention.num_heads),
                   -std::numeric_limits<float>::infinity());
}

void RemoteAttention::SendRows(Batch& batch, NodeId taker, const float* q, const float* k,
                               const float* v) {
  if (options_.wire.overlap && !batch.sent_queries)
    StartQueries(taker, batch.number, batch.layer, q);
  batch.sent_queries = false;
  batch.q = q;
  batch.k = k;
  batch.v = v;
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!peer(i).lost() && !batch.by_peer[i].decode.empty()) SendDecode(batch, i, taker);
  }
  if (batch.first_prefill < batch.rows.size()) {
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (!peer(i).lost() && !batch.by_peer[i].prefill.empty()) PushPrefill(batch, i);
    }
    const size_t first = batch.first_prefill, q_width = options_.wire.q_row_elements(),
                 kv_width = options_.wire.kv_row_elements();
    prefill_->Attend(batch.layer - options_.own_layers.first, batch.step, batch.rows.subspan(first),
                     q + first * q_width, k + first * kv_width, v + first * kv_width,
                     batch.out + first * q_width, batch.failures);
  }
}

bool RemoteAttention::Finish(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  Progress();
  const auto missing = [&](const Peer& p) {
    const bool waits = p.connection->asked(number) && !p.connection->replied(number);
    return !p.connection->lost() &&
           (waits || (p.connection->link() != nullptr && p.connection->link()->carries(number)));
  };
  if (std::any_of(peers_.begin(), peers_.end(), missing)) {
    if (Clock::now() < batch.started + options_.peer_timeout) return false;
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (missing(peers_[i])) LoseLate(batch, i, "the attention output");
    }
    FailRowsOfLost();
  }
  bool waits_here = false;  // whether this host has waited, and not a device
  for (size_t i = 0; i < peers_.size(); ++i) {
    waits_here |= peer(i).asked(number);
    if (batch.by_peer[i].linked == PeerRows::Linked::kPosted && !peer(i).lost())
      AwaitByLink(batch, i);
  }
  if (Fetching(batch)) return false;
  // In the peers' order, so that sums do not depend on who answered first.
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (peer(i).asked(number) && !peer(i).lost()) ReadReply(batch, i);
    peer(i).Forget(number);
    if (batch.by_peer[i].linked == PeerRows::Linked::kAwaited && !peer(i).lost())
      EndByLink(batch, i);
    batch.by_peer[i].linked = PeerRows::Linked::kIdle;
  }
  if (!batch.partial.empty()) {
    const auto width = static_cast<int64_t>(options_.wire.q_row_elements());
    device_.Unpack(reinterpret_cast<const std::byte*>(batch.merged.data()), DType::kF32,
                   {batch.partial, width, 0, width}, batch.out);
  }
  FailRowsOfLost();
  if (waits_here)
    batch.traffic.wait_us +=
        std::chrono::duration_cast<microseconds>(Clock::now() - batch.posted).count();
  batch.started = TimePoint::max();
  for (const Peer& p : peers_) batch.traffic.stale_messages += p.connection->TakeStale();
  return true;
}

void RemoteAttention::EndStep(int number) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  prefill_->End(batch.rows.subspan(batch.first_prefill), batch.failures);
  batch.rows = {};
}

void RemoteAttention::Sleep(std::span<const int> fds, Deadline latest) {
  TimePoint first = Clock::now();
  bool fetching = Carrying();
  for (const Batch& batch : batches_) {
    first = std::min(first, batch.started);
    fetching |= Fetching(batch);
  }
  ladder_->Sleep(fds, fetching ? Deadline::After(kDeviceInterval)
                               : Deadline(std::min(first + options_.peer_timeout, latest.at())));
}

std::vector<LostNode> RemoteAttention::TakeLostNodes() {
  std::vector<LostNode> lost;
  for (Peer& p : peers_) {
    if (p.connection->lost() && !p.told)
      lost.push_back(
          {p.connection->address().node, p.connection->name() + ": " + p.connection->why()});
    p.told = p.connection->lost();
  }
  return lost;
}

std::vector<DataPath> RemoteAttention::paths() const {
  std::vector<DataPath> paths;
  for (const Peer& p : peers_) paths.push_back(p.connection->path());
  return paths;
}

MessageHeader RemoteAttention::Header(const Batch& batch, size_t first_row, size_t num_rows) const {
  return {.step = batch.step.value,
          .layer = static_cast<uint32_t>(batch.layer),
          .first_row = static_cast<uint32_t>(first_row),
          .num_rows = static_cast<uint32_t>(num_rows)};
}

RowParts RemoteAttention::HeadsOf(size_t to, std::span<const int> rows) const {
  const AttentionShape& shape = options_.attention;
  const int64_t first_head = int64_t{peer(to).address().first_kv_head} * shape.group();
  return {rows, int64_t{shape.num_heads} * shape.head_dim, first_head * shape.head_dim,
          static_cast<int64_t>(peer(to).wire().q_row_elements())};
}

RowParts RemoteAttention::KvHeadsOf(size_t to, std::span<const int> rows) const {
  const AttentionShape& shape = options_.attention;
  return {rows, int64_t{shape.num_kv_heads} * shape.head_dim,
          int64_t{peer(to).address().first_kv_head} * shape.head_dim,
          static_cast<int64_t>(peer(to).wire().kv_row_elements())};
}

// Calls `post` with the message's header until there is room. If it fails, the peer is lost.
template <typename Post>
void RemoteAttention::Send(Batch& batch, size_t to, NodeId taker, const char* what,
                           size_t payload_bytes, Post post) {
  MessageHeader header = Header(batch, 0, batch.by_peer[to].decode.size());
  header.flags =
      static_cast<uint16_t>((batch.by_peer[to].wants_lse ? kWantsLse : 0) | TimesFlags(batch));
  header.reply_to = static_cast<uint16_t>(taker.value);
  Status posted;
  WaitFor(batch, to, what, [&] {
    posted = post(header);
    return posted.code() != StatusCode::kTryAgain;
  });
  if (!posted.ok()) {
    peer(to).Lose(posted.message());
    FailRowsOfLost();
  } else {
    batch.traffic.sent_bytes += static_cast<int64_t>(sizeof(header) + payload_bytes);
  }
}

void RemoteAttention::MarkPosted(PeerRows& rows) const {
  rows.posted_ns = trace_ != nullptr ? trace_->Now() : 0;
  rows.on_our_clock = true;
}

void RemoteAttention::SendQueries(Batch& batch, size_t to, NodeId taker) {
  std::byte* const begin = peer(to).payload(MessageKind::kQueries, batch.number).data();
  const PackedParts q{batch.q, HeadsOf(to, batch.by_peer[to].decode_rows),
                      peer(to).wire().wire_dtype};
  const auto bytes = static_cast<size_t>(device_.Pack({&q, 1}, begin) - begin);
  Send(batch, to, taker, "room to send q", bytes, [&](const MessageHeader& header) {
    MarkPosted(batch.by_peer[to]);
    return peer(to).Post(MessageKind::kQueries, batch.number, header, bytes);
  });
}

void RemoteAttention::SendDecode(Batch& batch, size_t to, NodeId taker) {
  std::byte* const begin = peer(to).payload(MessageKind::kDecode, batch.number).data();
  const PeerRows& rows = batch.by_peer[to];
  const WireShape& wire = peer(to).wire();
  const RowParts stored = KvHeadsOf(to, rows.stored_rows);
  const std::array<PackedParts, 3> qkv = {
      PackedParts{batch.q, HeadsOf(to, rows.decode_rows), wire.wire_dtype},
      PackedParts{batch.k, stored, wire.kv_dtype}, PackedParts{batch.v, stored, wire.kv_dtype}};
  if (peer(to).link() != nullptr) return PostByLink(batch, to, qkv);
  // With overlap q was sent before, by SendQueries.
  const std::span<const PackedParts> packed = std::span(qkv).subspan(options_.wire.overlap ? 1 : 0);
  const auto bytes = static_cast<size_t>(device_.Pack(packed, begin) - begin);
  Send(batch, to, taker, "room to send q, k and v", bytes, [&](const MessageHeader& header) {
    if (!options_.wire.overlap) MarkPosted(batch.by_peer[to]);
    return peer(to).Post(MessageKind::kDecode, batch.number, header, bytes);
  });
  if (taker != NodeId{} && !peer(to).lost())
    asked_.push_back({peer(to).address().node, batch.by_peer[to].posted_ns});
}

void RemoteAttention::PostByLink(Batch& batch, size_t to, std::span<const PackedParts> qkv) {
  PeerRows& rows = batch.by_peer[to];
  peer(to).link()->Post(batch.number,
                        AboutMessage(batch.step.value, rows.decode.size(), rows.stored_rows.size()),
                        qkv);
  rows.linked = PeerRows::Linked::kPosted;
  rows.posted_ns = 0;
  for (const PackedParts& part : qkv)
    batch.traffic.sent_bytes +=
        part.parts.num_elements() * static_cast<int64_t>(ElementSize(part.dtype));
}

// The next slice may be queued behind this wait, before the reply is there, unless this host has a
// part in what follows. It has one where partials are merged, at the end of a step, when it checks
// that the replies came at all, and where it posts messages for NICs. With several batches under
// way it also has one: it sees to it that the device does not wait for one batch while it could run
// slices of another.
void RemoteAttention::AwaitByLink(Batch& batch, size_t from) {
  DeviceLink& link = *peer(from).link();
  const WireShape& wire = peer(from).wire();
  PeerRows& rows = batch.by_peer[from];
  const bool ahead = RunsAhead(batch);
  link.Await(batch.number, ahead);
  rows.linked = PeerRows::Linked::kAwaited;
  rows.taken = ahead;
  if (ahead) TakeByLink(batch, from);
  rows.fetches = !ahead || rows.wants_lse || batch.layer == options_.num_layers - 1;
  if (rows.fetches)
    link.Fetch(batch.number, rows.wants_lse
                                 ? rows.decode.size() * (wire.q_row_bytes() + wire.lse_row_bytes())
                                 : 0);
}

void RemoteAttention::TakeByLink(Batch& batch, size_t from) {
  const WireShape& wire = peer(from).wire();
  ForEachWhole(batch, from, [&](size_t first, const RowParts& whole) {
    peer(from).link()->Unpack(batch.number, first * wire.q_row_bytes(), wire.wire_dtype, whole,
                              batch.out);
  });
}

bool RemoteAttention::RunsAhead(const Batch& batch) const {
  const auto by_posts = [](const Peer& p) {
    return p.connection->link() != nullptr && p.connection->link()->by_posts();
  };
  return std::ranges::none_of(peers_, by_posts) &&
         std::ranges::all_of(
             batches_, [&](const Batch& other) { return &other == &batch || other.rows.empty(); });
}

bool RemoteAttention::Carrying() const {
  return std::ranges::any_of(peers_, [&](const Peer& p) {
    const DeviceLink* const link = p.connection->lost() ? nullptr : p.connection->link();
    return link != nullptr && std::ranges::any_of(batches_, [&](const Batch& batch) {
             return link->carries(batch.number);
           });
  });
}

bool RemoteAttention::Fetching(const Batch& batch) const {
  for (size_t i = 0; i < batch.by_peer.size(); ++i) {
    const PeerRows& rows = batch.by_peer[i];
    if (rows.linked != PeerRows::Linked::kAwaited || !rows.fetches) continue;
    if (!peer(i).lost() && !peer(i).link()->fetched(batch.number)) return true;
  }
  return false;
}

void RemoteAttention::EndByLink(Batch& batch, size_t from) {
  const PeerRows& rows = batch.by_peer[from];
  DeviceLink& link = *peer(from).link();
  batch.traffic.received_bytes +=
      static_cast<int64_t>(rows.decode.size() * peer(from).wire().q_row_bytes());
  if (!rows.fetches) return;
  const int64_t waited_us = link.waited_us();
  batch.traffic.wait_us += waited_us - std::exchange(peers_[from].waited_us, waited_us);
  const Status outcome = link.outcome(batch.number);
  if (outcome.code() == StatusCode::kTimeout)
    LoseLate(batch, from, "the attention output");
  else if (!outcome.ok())
    FailDecodeRows(batch, from, outcome.WithContext("memory node " + peer(from).name()));
  if (!outcome.ok()) return;
  if (!rows.taken) TakeByLink(batch, from);
  if (rows.wants_lse) MergeRows(batch, from, link.payload(batch.number));
}

void RemoteAttention::GiveUp() {
  for (const Peer& p : peers_) {
    if (p.connection->link() != nullptr) p.connection->link()->GiveUp();
  }
}

void RemoteAttention::PushPrefill(Batch& batch, size_t to) {
  const size_t count = batch.by_peer[to].prefill.size();
  for (size_t first = 0; first < count && !peer(to).lost(); first += kMaxPushRows) {
    PushRows(batch, to, first, std::min<size_t>(kMaxPushRows, count - first));
  }
}

void RemoteAttention::PushRows(Batch& batch, size_t to, size_t first, size_t count) {
  std::optional<int> slot;
  if (!WaitFor(batch, to, "a push slot",
               [&] { return (slot = peer(to).FreePushSlot()).has_value(); }))
    return;
  const DType dtype = peer(to).wire().kv_dtype;
  const RowParts rows = KvHeadsOf(to, std::span(batch.by_peer[to].prefill).subspan(first, count));
  const std::array<PackedParts, 2> kv = {PackedParts{batch.k, rows, dtype},
                                         PackedParts{batch.v, rows, dtype}};
  std::byte* const payload = peer(to).payload(MessageKind::kPush, *slot).data();
  const auto bytes = static_cast<size_t>(device_.Pack(kv, payload) - payload);
  Status posted;
  WaitFor(batch, to, "room to push k and v", [&] {
    posted = peer(to).Post(MessageKind::kPush, *slot, Header(batch, first, count), bytes);
    return posted.code() != StatusCode::kTryAgain;
  });
  if (!posted.ok()) {
    peer(to).Lose(posted.message());
    FailRowsOfLost();
  } else {
    batch.traffic.sent_bytes += static_cast<int64_t>(sizeof(MessageHeader) + bytes);
  }
}

void RemoteAttention::ReadReply(Batch& batch, size_t from) {
  const int64_t start_ns = trace_ != nullptr ? trace_->Now() : 0;
  Result<ReceivedMessage> reply = peer(from).TakeReply(batch.number, batch.step, batch.layer);
  if (!reply.ok()) return peer(from).Lose(reply.status().message());
  batch.traffic.received_bytes +=
      static_cast<int64_t>(sizeof(MessageHeader) + reply->payload.size());
  const std::optional<ReplyTimes> times =
      (reply->header.flags & kTimes) != 0 ? CutReplyTimes(reply->payload) : std::nullopt;
  if (reply->header.status == 0) {
    if ((reply->header.flags & kFailedRows) != 0 && !TakeFailedRows(batch, from, reply->payload))
      return;
    TakeOutputs(batch, from, reply->payload);
  } else {
    const std::string text(reinterpret_cast<const char*>(reply->payload.data()),
                           reply->payload.size());
    FailDecodeRows(batch, from,
                   {static_cast<StatusCode>(reply->header.status),
                    "memory node " + peer(from).name() + ": " + text});
  }
  if (trace_ == nullptr) return;
  const TracedWork traced = Traced(batch, batch.by_peer[from].decode.size());
  const PeerRows& asked = batch.by_peer[from];
  if (times && asked.on_our_clock)
    trace_->Answered(peer(from).address().node, traced, asked.posted_ns, *times);
  if (times && !asked.on_our_clock) trace_->AnsweredAnother(peer(from).address().node, *times);
  trace_->Ran(StepWork::kTake, traced, start_ns);
}

int RemoteAttention::TimesFlags(const Batch& batch) const {
  return (trace_ != nullptr && trace_->on() ? kTimes : 0) |
         (batch.layer == options_.num_layers - 1 ? kLastLayer : 0);
}

size_t RemoteAttention::OutputBytes(const Batch& batch, size_t from) const {
  const WireShape& wire = peer(from).wire();
  const PeerRows& rows = batch.by_peer[from];
  return rows.decode.size() * (wire.q_row_bytes() + (rows.wants_lse ? wire.lse_row_bytes() : 0));
}

// Reads the failed rows and cuts them off the payload. Returns false if the bytes mean nothing; the
// memory node is lost then.
bool RemoteAttention::TakeFailedRows(Batch& batch, size_t from,
                                     std::span<const std::byte>& payload) {
  const std::vector<DecodeRow>& rows = batch.by_peer[from].decode;
  const size_t output_bytes = std::min(OutputBytes(batch, from), payload.size());
  const Result<FailedRows> failed = FailedRows::Read(payload.subspan(output_bytes), rows.size());
  if (!failed.ok()) {
    peer(from).Lose(failed.status().message());
    return false;
  }
  const Status why = failed->why.WithContext("memory node " + peer(from).name());
  for (const uint32_t row : failed->rows) FailRow(batch, rows[row].row, why);
  payload = payload.first(output_bytes);
  return true;
}

void RemoteAttention::TakeOutputs(Batch& batch, size_t from, std::span<const std::byte> payload) {
  const WireShape& wire = peer(from).wire();
  const PeerRows& rows = batch.by_peer[from];
  if (payload.size() != OutputBytes(batch, from))
    return peer(from).Lose("answered with another number of rows than asked");
  ForEachWhole(batch, from, [&](size_t first, const RowParts& whole) {
    device_.Unpack(payload.data() + first * wire.q_row_bytes(), wire.wire_dtype, whole, batch.out);
  });
  if (rows.wants_lse) MergeRows(batch, from, payload);
}

// Calls take(first, rows) for each run of consecutive decode rows for which this memory node alone
// attends. `first` is the number of the run's first row in messages.
template <typename Take>
void RemoteAttention::ForEachWhole(const Batch& batch, size_t from, Take take) const {
  const PeerRows& rows = batch.by_peer[from];
  for (size_t i = 0; i < rows.decode.size(); ++i) {
    if (!rows.decode[i].whole) continue;
    size_t end = i + 1;
    while (end < rows.decode.size() && rows.decode[end].whole) ++end;
    take(i, HeadsOf(from, std::span(rows.decode_rows).subspan(i, end - i)));
    i = end;  // row `end`, if there is one, is not whole and can be skipped
  }
}

void RemoteAttention::MergeRows(Batch& batch, size_t from, std::span<const std::byte> payload) {
  const WireShape& wire = peer(from).wire();
  const PeerRows& rows = batch.by_peer[from];
  const auto* lse =
      reinterpret_cast<const float*>(payload.data() + rows.decode.size() * wire.q_row_bytes());
  for (size_t i = 0; i < rows.decode.size(); ++i) {
    if (rows.decode[i].whole) continue;
    MergeRow(batch, from, rows.decode[i].row, payload.data() + i * wire.q_row_bytes(),
             lse + i * static_cast<size_t>(wire.num_heads));
  }
}

void RemoteAttention::MergeRow(Batch& batch, size_t from, int row, const std::byte* out,
                               const float* lse) {
  const WireShape& wire = peer(from).wire();
  const auto head_dim = static_cast<size_t>(options_.attention.head_dim);
  part_.resize(wire.q_row_elements());
  ConvertToFloat(out, wire.wire_dtype, std::ssize(part_), part_.data());
  const auto index =
      static_cast<size_t>(std::ranges::lower_bound(batch.partial, row) - batch.partial.begin());
  const size_t first_head =
      index * static_cast<size_t>(options_.attention.num_heads) +
      static_cast<size_t>(peer(from).address().first_kv_head * options_.attention.group());
  for (size_t head = 0; head < static_cast<size_t>(wire.num_heads); ++head) {
    const std::span<float> merged =
        std::span(batch.merged).subspan((first_head + head) * head_dim, head_dim);
    MergePartial(merged, batch.lse[first_head + head],
                 std::span(part_).subspan(head * head_dim, head_dim), lse[head]);
  }
}

bool RemoteAttention::Progress() {
  bool any = false;
  for (Peer& p : peers_) any |= p.connection->Poll();
  if (any) FailRowsOfLost();
  return any;
}

// Polls until done(). Returns false if the peer is lost before, or is late and is lost by that.
template <typename Done>
bool RemoteAttention::WaitFor(const Batch& batch, size_t on, const char* what, Done done) {
  if (done()) return true;
  const Deadline deadline = Deadline::After(options_.peer_timeout);
  Backoff backoff(kRoomPatience);
  while (!peer(on).lost()) {
    const bool progress = Progress();
    if (progress) backoff.Reset();
    if (while_waiting_) while_waiting_();
    if (!peer(on).lost() && done()) return true;
    if (deadline.Passed()) {
      LoseLate(batch, on, what);
      FailRowsOfLost();
    } else if (!progress && backoff.Idle()) {
      const TimePoint next = while_waiting_ ? Clock::now() + waiting_interval_ : TimePoint::max();
      ladder_->Sleep({}, Carrying() ? Deadline::After(kDeviceInterval)
                                    : Deadline(std::min(next, deadline.at())));
    }
  }
  return false;
}

void RemoteAttention::LoseLate(const Batch& batch, size_t late, const char* what) {
  const auto number = &batch - batches_.data();
  peer(late).Lose("step " + std::to_string(batch.step.value) + " batch " + std::to_string(number) +
                  " layer " + std::to_string(batch.layer) + ": " + what + " did not come from " +
                  peer(late).peer_name() + " over " + peer(late).path().fabric + " within " +
                  Milliseconds(options_.peer_timeout));
}

void RemoteAttention::FailRowsOfLost() {
  for (size_t i = 0; i < peers_.size(); ++i) {
    if (!peer(i).lost() || peers_[i].failed) continue;
    peers_[i].failed = true;
    const Status status = PeerLost("memory node " + peer(i).name() + " is lost: " + peer(i).why());
    for (Batch& batch : batches_) {
      if (batch.rows.empty()) continue;  // no step
      FailDecodeRows(batch, i, status);
      for (const int row : batch.by_peer[i].prefill) FailRow(batch, row, status);
    }
  }
}

void RemoteAttention::FailDecodeRows(Batch& batch, size_t of_peer, const Status& status) {
  for (const DecodeRow& row : batch.by_peer[of_peer].decode) FailRow(batch, row.row, status);
}

void RemoteAttention::FailRow(Batch& batch, int row, const Status& status) {
  batch.failures.emplace(batch.rows[static_cast<size_t>(row)].sequence, status);
}

}  // namespace lamina
