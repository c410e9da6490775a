#include "memory_node/memory_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/host_memory.h"
#include "base/log.h"
#include "base/random_id.h"
#include "memory_node/make_kv_device.h"
#include "node/wire_shape.h"
#include "transport/crypto.h"
#include "wire/codec.h"

namespace lamina {
namespace {

// More notifications than a correct compute node can have waiting: one for each area, one for a
// link, and one more for each first part of a decode message, since the next may come while the
// last, which was read together with its second part, is still in the queue.
constexpr size_t kMostNotifications = 4 * kMaxBatches;
static_assert(kMostNotifications > 3 * kMaxBatches + kPushSlots + 1);
// How often to look for replies of the device that are to be posted: the device wakes nobody.
constexpr auto kDeviceInterval = std::chrono::microseconds(100);
// How often to look for new peers. It takes system calls, for which messages of the peers that are
// here should not wait.
constexpr auto kAcceptInterval = std::chrono::milliseconds(1);

// A manager cannot keep a node's memory for longer without a session.
constexpr auto kLongestKept = std::chrono::hours(1);

Status CheckShape(const AttentionSpec& spec, const SessionLimits& limits) {
  const bool ok = spec.num_layers > 0 && spec.num_layers <= 1024 && spec.num_kv_heads > 0 &&
                  spec.num_heads > 0 && spec.num_heads <= 1024 &&
                  spec.num_heads % spec.num_kv_heads == 0 && spec.head_dim > 0 &&
                  spec.head_dim <= 256 && spec.head_dim % 8 == 0 && limits.max_num_seqs > 0 &&
                  limits.max_num_seqs <= 65536 && limits.num_batches <= kMaxBatches &&
                  spec.soft_cap >= 0 && std::isfinite(spec.soft_cap) &&
                  (spec.windows.empty() || std::ssize(spec.windows) == spec.num_layers) &&
                  std::ranges::all_of(spec.windows, [](auto& window) { return window.size >= 0; });
  if (ok) return OkStatus();
  return InvalidArgument(
      fmt::format("attention shape not supported: {} layers, {} windows, {} heads, {} kv heads, "
                  "head_dim {}, soft cap {}, "
                  "{} sequences in {} batches; head_dim must be a multiple of 8 up to 256 and kv "
                  "heads must divide heads",
                  spec.num_layers, spec.windows.size(), spec.num_heads, spec.num_kv_heads,
                  spec.head_dim, spec.soft_cap, limits.max_num_seqs, limits.num_batches));
}

ScoreRules RulesOf(const AttentionSpec& spec) { return {spec.scale, spec.soft_cap, spec.windows}; }

}  // namespace

Result<std::unique_ptr<MemorySession>> MemorySession::Open(const ConfigureMemory& request,
                                                           const ManagerConnection& manager,
                                                           const MemoryNodeOptions& options,
                                                           WorkerTeam& team, KvState kept) {
  const AttentionSpec& spec = request.attention;
  LAMINA_RETURN_IF_ERROR(CheckShape(spec, request.limits));
  LAMINA_ASSIGN_OR_RETURN(const WireShape wire, WireShapeOf(request));
  const KvShape shape{spec.num_layers, spec.num_kv_heads, spec.head_dim, spec.kv_dtype};
  LAMINA_ASSIGN_OR_RETURN(const int64_t capacity, KvCapacityTokens(options, shape));
  if (capacity < 1) {
    return OutOfSpace("--memory " + std::to_string(options.memory_bytes) +
                      " bytes is less than one token's KV (" +
                      std::to_string(shape.bytes_per_token()) + " bytes)");
  }
  auto session = std::unique_ptr<MemorySession>(new MemorySession(manager, request));
  session->capacity_tokens_ = capacity;
  session->wire_ = wire;
  const auto window_bytes = static_cast<int64_t>(wire.memory_window_bytes());
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(
      window_bytes, fmt::format("a compute node's messages of {} sequences in {} batches",
                                wire.max_rows, wire.num_batches)));
  const bool takes_over = kept.device != nullptr && request.kv_id == 0;
  const uint64_t left_by = kept.manager;
  session->kv_id_ = kept.device == nullptr || takes_over ? RandomId() : request.kv_id;
  if (kept.device == nullptr) {
    LAMINA_ASSIGN_OR_RETURN(kept.device, MakeKvDevice(options, shape, capacity, team));
  }
  session->service_ =
      std::make_unique<AttentionService>(wire, RulesOf(spec), request.epoch, std::move(kept));
  if (takes_over) {
    session->left_ = {left_by, session->service_->Left()};
  } else {
    // Another manager's numbers mean other sequences.
    if (left_by != request.manager_id) session->service_->Keep({});
    session->missing_ = session->service_->Keep(request.held);
  }
  session->opens_to_nics_ = request.polling == PollingMode::kDevice;
  if (request.polling != PollingMode::kHost) {
    Result<std::unique_ptr<AheadAttention>> ahead = session->service_->MakeAheadAttention();
    if (ahead.ok())
      session->offered_ = std::move(*ahead);
    else
      LAMINA_LOG_INFO("this host polls for messages, not the device: {}", ahead.status().message());
  }
  LAMINA_ASSIGN_OR_RETURN(session->ladder_, options.open_ladder(FabricNames(request.fabrics)));
  if (request.modelled_link) session->ladder_->Model(*request.modelled_link);
  LAMINA_RETURN_IF_ERROR(session->ladder_->Listen(manager.listening_host()));
  LAMINA_LOG_INFO("ready for {}: {} token slots, data paths offered: {}", manager.name(), capacity,
                  session->ladder_->offers());
  return session;
}

MemorySession::MemorySession(const ManagerConnection& manager, const ConfigureMemory& request)
    : manager_(manager),
      epoch_(request.epoch),
      token_(request.session_token),
      payload_checksum_(request.payload_checksum),
      spec_(request.attention),
      manager_id_(request.manager_id),
      kv_content_(request.kv_content),
      keep_for_(std::clamp<Clock::duration>(request.keep_for, {}, kLongestKept)) {}

// Endpoints go before what they write into.
KvState MemorySession::End(std::unique_ptr<MemorySession> session) {
  session->peers_.clear();
  session->offered_.reset();
  KvState kv = session->service_->TakeKv();
  kv.content = session->kv_content_;
  kv.manager = session->left_.manager != 0 ? session->left_.manager : session->manager_id_;
  return kv;
}

Configured MemorySession::opened() const {
  Configured answer;
  answer.capacity_tokens = capacity_tokens_;
  answer.offers = ladder_->offers();
  answer.kv_id = kv_id_;
  answer.missing = missing_;
  answer.left = left_;
  if (const ElasticLayers* const layers = service_->layers()) {
    answer.elastic_kv = layers->kv();
    answer.layers_inside = layers->inside().num_layers;
  }
  return answer;
}

void MemorySession::ForgetLeft() {
  if (left_.manager == 0) return;
  left_ = {};
  service_->Keep({});
}

bool MemorySession::HandleFrame(const ControlFrame& frame) {
  switch (static_cast<MessageType>(frame.type)) {
    case MessageType::kMemoryOrder: {
      const Result<MemoryOrder> order = Decode<MemoryOrder>(frame.payload);
      if (!order.ok() || order->epoch != epoch_) return false;
      ForgetLeft();
      service_->Apply(*order);
      if (const ElasticLayers* const layers = service_->layers();
          layers != nullptr && order->layers_inside != 0)
        manager_.Send(MessageType::kLayersTold, Encode(LayersTold{epoch_, layers->inside()}));
      return true;
    }
    case MessageType::kStatsRequest:
      ForgetLeft();
      manager_.Send(MessageType::kStats, Encode(service_->stats()));
      return true;
    default: return false;
  }
}

bool MemorySession::Turn(TimePoint now) {
  bool busy = now >= next_accept_ && AcceptPeers(now);
  for (ComputePeer& peer : peers_) busy |= PollPeer(peer);
  std::erase_if(peers_, [](const ComputePeer& peer) { return peer.lost; });
  return busy;
}

TimePoint MemorySession::wake_at(TimePoint now) const {
  const AheadAttention* const ahead = service_->ahead();
  return ahead != nullptr && ahead->carries() ? now + kDeviceInterval : TimePoint::max();
}

void MemorySession::Sleep(std::span<const int> fds, TimePoint latest) {
  ladder_->Sleep(fds, Deadline(latest));
}

bool MemorySession::AcceptPeers(TimePoint now) {
  next_accept_ = now + kAcceptInterval;
  EndpointOptions options{
      wire_.memory_window_bytes(), DataHello{epoch_, 0, ""}.Encode(),
      [this](const std::string& hello) { return IsMember(DataHello::Decode(hello)); }};
  if (offered_ != nullptr) options.device_window = offered_->window();
  if (!opens_to_nics_) options.device_window.data = nullptr;
  Result<Path> path = ladder_->Accept(options);
  if (!path.ok()) {
    if (path.status().code() == StatusCode::kTryAgain) return false;
    if (const auto rest = accept_lines_.Admit())
      LAMINA_LOG_WARN("accepting a compute node: {}{}", path.status().ToString(), *rest);
    return false;
  }
  const std::optional<DataHello> hello = DataHello::Decode(path->endpoint->peer_hello());
  if (!IsMember(hello)) return true;
  const std::string peer_name = path->endpoint->peer_name();
  Result<std::unique_ptr<Lanes>> lanes =
      Lanes::Create(*path->fabric, std::move(path->endpoint), ReplyLanes(wire_), DecodeLanes(wire_),
                    {epoch_, payload_checksum_});
  if (!lanes.ok()) {
    LAMINA_LOG_WARN("refused a compute node at {}: {}", peer_name, lanes.status().ToString());
    return true;
  }
  LAMINA_LOG_INFO("a compute node connected over {} from {}", path->fabric->name(), peer_name);
  ComputePeer& peer = peers_.emplace_back();
  peer.lanes = std::move(*lanes);
  peer.node = NodeId{hello->node_id};
  return true;
}

bool MemorySession::IsMember(const std::optional<DataHello>& hello) const {
  return hello && hello->epoch == epoch_ && EqualInConstantTime(hello->session_token, token_);
}

bool MemorySession::PollPeer(ComputePeer& peer) {
  const MessageKind begins = wire_.overlap ? MessageKind::kQueries : MessageKind::kDecode;
  const Result<Lanes::Polled> polled = peer.lanes->Poll([&](const Notification& notification) {
    peer.notifications.push_back(notification);
    if (notification.kind == begins) peer.noticed_ns[notification.slot] = NowNs();
    return notification.kind != MessageKind::kAlive &&
           peer.notifications.size() <= kMostNotifications;
  });
  if (!polled.ok()) Lose(peer, polled.status());
  for (int64_t left = peer.lanes->TakeStale(); left > 0; --left) service_->CountStale();
  const AheadAttention* const ahead = peer.joined ? service_->ahead() : nullptr;
  if (!peer.lost && ahead != nullptr && ahead->gave_up()) {
    Lose(peer, Corrupt("a message to the device did not come in time, or was about something else "
                       "than ordered"));
  }
  if (peer.lost && ahead != nullptr) service_->ahead()->GiveUp();
  bool busy = !polled.ok() || polled->num_events > 0;
  if (!peer.lost && peer.joined) {
    const Result<bool> left = service_->ahead()->Carry(peer.lanes->endpoint());
    if (!left.ok()) Lose(peer, left.status().WithContext("replies of the device"));
    busy |= !left.ok() || *left;
  }
  while (!peer.lost && !peer.notifications.empty() &&
         HandleNotification(peer, peer.notifications.front())) {
    peer.notifications.pop_front();
    busy = true;
  }
  return busy;
}

// Returns false if the message has to wait for its order.
bool MemorySession::HandleNotification(ComputePeer& peer, const Notification& notification) {
  if (notification.kind == MessageKind::kLink) {
    HandleLink(peer, notification.slot != 0);
    return true;
  }
  const auto [kind, slot, number] = notification;
  if (peer.joined && kind != MessageKind::kPush) {
    Lose(peer, Corrupt("a decode message by another way than agreed on"));
    return true;
  }
  // The first part of a decode message came behind the second, which was read together with it.
  if (kind == MessageKind::kQueries && peer.lanes->taken(kind, slot) == number) {
    service_->CountStale();
    return true;
  }
  const Result<ReceivedMessage> message = peer.lanes->Peek(kind, slot);
  if (!message.ok()) {
    // It sees the connection close, and fails the rows that it has asked for.
    Lose(peer, message.status());
    return true;
  }
  const OrderedSteps::Timing timing = service_->steps().TimingOf(message->header);
  if (timing == OrderedSteps::Timing::kEarly) return false;
  peer.lanes->Drop(kind, slot);
  const bool stale = timing == OrderedSteps::Timing::kStale;
  if (stale) service_->CountStale();
  if (kind == MessageKind::kPush) {
    HandlePush(peer, *message, slot, stale);
  } else if (!stale) {
    HandleDecode(peer, *message, slot);
  }
  // The first part of a message is over with the second, also if it was never announced and nobody
  // wants the answer.
  if (wire_.overlap && kind == MessageKind::kDecode &&
      peer.lanes->taken(MessageKind::kQueries, slot) != number)
    peer.lanes->Drop(MessageKind::kQueries, slot);
  return true;
}

// Nothing of the peer is believed any more; the endpoint goes with it.
void MemorySession::Lose(ComputePeer& peer, const Status& why) {
  const std::string& name = peer.lanes->peer_name();
  if (why.code() == StatusCode::kPeerLost)
    LAMINA_LOG_WARN("the compute node at {} is lost: {}", name, why.message());
  else
    LAMINA_LOG_ERROR("the compute node at {} is lost: {}", name, why.ToString());
  peer.lost = true;
}

// There are never more answers in flight than areas that the compute node may fill, which is far
// below Limits::max_outstanding. So the queue is never full, and any failure means that the compute
// node is gone.
void MemorySession::LoseUnless(ComputePeer& peer, const Status& posted) {
  if (!posted.ok()) Lose(peer, posted);
}

// The compute node says whether its device reaches this node's device window. The answer says
// whether both windows are used; otherwise neither is.
void MemorySession::HandleLink(ComputePeer& peer, bool wanted) {
  bool joins = wanted && offered_ != nullptr && service_->steps().newest() == StepId{};
  if (joins) {
    const Endpoint& endpoint = peer.lanes->endpoint();
    const DeviceWindow theirs = endpoint.peer_device_window();
    const bool is_reached = theirs.descriptor >= 0 || endpoint.posts_to_device();
    const Status joined = is_reached ? offered_->Join(theirs)
                                     : Unimplemented("the compute node's device cannot be reached");
    if (!joined.ok())
      LAMINA_LOG_WARN("this host polls for messages, not the device: {}", joined.message());
    joins = joined.ok();
  }
  if (joins) {
    LAMINA_LOG_INFO("the device polls for messages of the compute node at {}",
                    peer.lanes->peer_name());
    service_->Use(std::move(offered_));
    peer.joined = true;
  }
  LoseUnless(peer, peer.lanes->Signal({MessageKind::kLink, joins ? 1u : 0u, 1}));
}

void MemorySession::HandlePush(ComputePeer& peer, const ReceivedMessage& message, uint32_t slot,
                               bool stale) {
  AttentionService& service = *service_;
  service.times().BeginWork();
  if (Status stored = stale ? OkStatus() : service.Push(message);
      stored.code() == StatusCode::kCorrupt)
    LAMINA_LOG_ERROR("push: {}", stored.message());
  service.times().EndWork();
  LoseUnless(peer, peer.lanes->Acknowledge(slot));
}

// Attends, and replies to the compute node that runs the next slice.
void MemorySession::HandleDecode(ComputePeer& peer, const ReceivedMessage& message, uint32_t slot) {
  ComputePeer* const taker = TakerOf(peer, message.header);
  if (taker == nullptr) return;
  AttentionService& service = *service_;
  if (message.header.kind == MessageKind::kQueries) return BeginDecode(peer, *taker, message, slot);
  service.times().Noticed(peer.noticed_ns[slot]);
  if (wire_.overlap) return EndDecode(peer, *taker, message, slot);
  const AttentionService::Reply reply =
      service.Decode(message, taker->lanes->payload(MessageKind::kReply, slot));
  LoseUnless(*taker,
             taker->lanes->Post(MessageKind::kReply, slot, reply.header, reply.payload_bytes));
}

MemorySession::ComputePeer* MemorySession::TakerOf(ComputePeer& peer, const MessageHeader& header) {
  const NodeId taker{header.reply_to};
  if (taker == NodeId{}) return &peer;
  const auto found = std::ranges::find_if(
      peers_, [&](const ComputePeer& p) { return p.node == taker && !p.lost; });
  if (found != peers_.end()) return &*found;
  // That node knows already, or will soon, that it is not connected, so nobody is answered.
  LAMINA_LOG_WARN("no compute node {} is connected to reply to", taker.value);
  return nullptr;
}

void MemorySession::BeginDecode(ComputePeer& peer, ComputePeer& taker,
                                const ReceivedMessage& queries, uint32_t slot) {
  peer.begun[slot] = service_->Begin(queries, taker.lanes->payload(MessageKind::kReply, slot));
}

void MemorySession::EndDecode(ComputePeer& peer, ComputePeer& taker, const ReceivedMessage& message,
                              uint32_t slot) {
  // The notification of q has not come. A peer's posts are written in order, so q is here all the
  // same.
  if (peer.lanes->taken(MessageKind::kQueries, slot) != message.header.number) {
    const Result<ReceivedMessage> queries = peer.lanes->Take(MessageKind::kQueries, slot);
    if (!queries.ok()) return Lose(peer, queries.status());
    if (queries->header.number != message.header.number)
      return Lose(peer, Corrupt("k and v of a message other than that of q"));
    BeginDecode(peer, taker, *queries, slot);
  }
  AttentionService::Begun& begun = peer.begun[slot];
  const AttentionService::Reply reply = service_->End(
      begun, message, taker.lanes->payload(MessageKind::kReply, slot),
      [&](size_t bytes) { return taker.lanes->PostEarly(MessageKind::kReply, slot, bytes).ok(); });
  LoseUnless(taker, taker.lanes->Post(MessageKind::kReply, slot, reply.header, reply.payload_bytes,
                                      begun.early_bytes));
}

}  // namespace lamina
