#include "compute_node/remote_step.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "compute_node/decode_by_devices.h"

namespace lamina {
namespace {

Status LossOf(const MemoryPeer& peer) {
  return PeerLost("memory node " + peer.name() + " is lost: " + peer.why());
}

}  // namespace

RemoteStep::RemoteStep(RemoteSession& session, uint32_t batch)
    : session_(session),
      state_{.batch = batch, .partials = PartialOutputs(session.options.attention)} {
  for (size_t i = 0; i < session.peers.size(); ++i) {
    MemoryPeer& peer = session.peers[i];
    shares_.push_back(
        {peer, std::make_unique<PeerRows>(peer, session.options.attention, has_sinks())});
    Share& share = shares_.back();
    if (peer.link() != nullptr) {
      share.path = std::make_unique<DecodeByDevices>(session, peer, state_, *share.rows);
    } else {
      auto path = std::make_unique<DecodeByMessages>(session, peer, state_, *share.rows);
      share.by_messages = path.get();
      share.path = std::move(path);
    }
  }
}

void RemoteStep::Begin(const AttentionRows& rows) {
  state_.id = rows.step;
  state_.rows = rows.rows;
  state_.failures.clear();
  state_.traffic = {};
  state_.partials.Clear();
  first_prefill_ = static_cast<size_t>(std::ranges::find_if(state_.rows, &AttentionWork::prefill) -
                                       state_.rows.begin());
  if (!state_.rows.empty()) ++session_.num_steps;
  for (Share& share : shares_) {
    share.rows->Clear();
    share.path->Begin();
    share.num_unpushed = 0;
    share.failed = share.peer.lost();
    share.late = false;
  }
  late_.clear();
  suspended_.clear();
  for (int i = 0; i < static_cast<int>(state_.rows.size()); ++i) {
    const AttentionWork& work = state_.rows[static_cast<size_t>(i)];
    if (!work.prefill && (!work.also_on.empty() || has_sinks())) state_.partials.Add(i);
    AddRow(i, work.node);
    for (const NodeId node : work.also_on) AddRow(i, node);
  }
  LeaveOutSuspended();
  session_.prefill->Begin(state_.id, state_.rows.subspan(first_prefill_), state_.failures);
}

// Rows that have failed are entered too: the memory nodes that live have them in their order, and
// messages number the rows as the order does.
void RemoteStep::AddRow(int row, NodeId node) {
  bool found = false;
  for (Share& share : shares_) {
    if (share.peer.address().group != node) continue;
    found = true;
    if (share.peer.lost())
      state_.Fail(row, LossOf(share.peer));
    else
      share.rows->Add(row, state_.rows[static_cast<size_t>(row)]);
  }
  if (!found) state_.Fail(row, PeerLost("no such memory node"));
}

void RemoteStep::End() {
  if (!state_.rows.empty()) --session_.num_steps;
  session_.prefill->End(state_.rows.subspan(first_prefill_), failures());
  state_.rows = {};
  // A step that is given up may end in the middle of a layer.
  sent_queries_ = unsent_ = false;
  waits_since_ = stores_since_ = TimePoint::max();
}

const Failures& RemoteStep::failures() {
  FailRowsOfLost();
  return state_.failures;
}

void RemoteStep::FailRowsOfLost() {
  for (Share& share : shares_) {
    if (!share.peer.lost() || share.failed || state_.rows.empty()) continue;
    share.failed = true;
    const Status status = LossOf(share.peer);
    for (const int row : share.rows->decode()) state_.Fail(row, status);
    for (const int row : share.rows->prefill()) state_.Fail(row, status);
  }
}

// What of its prompts has not arrived there is lost, and the compute node does not keep it.
void RemoteStep::LeaveOut(Share& share) {
  if (share.by_messages != nullptr && share.by_messages->StopExpecting())
    share.peer.OweReply(state_.batch);
  if (std::exchange(share.late, true)) return;
  share.num_unpushed = 0;
  for (const int row : share.rows->decode())
    late_.push_back(state_.rows[static_cast<size_t>(row)].sequence);
  const Status status = TimedOut("memory node " + share.peer.name() + " is suspended");
  for (const int row : share.rows->prefill()) state_.Fail(row, status);
  if (share.peer.suspended())
    suspended_.push_back(
        {share.peer.address().node, session_.options.self, share.peer.suspension()});
}

// What another compute node has asked a node for will come here some time.
void RemoteStep::GoOnWithout(std::span<const SuspendedNode> nodes) {
  for (const SuspendedNode& node : nodes) {
    if (std::ranges::find(suspended_, node) != suspended_.end()) continue;
    suspended_.push_back(node);
    for (Share& share : shares_) {
      if (share.peer.address().node != node.node || share.peer.lost() || share.late ||
          share.rows->empty())
        continue;
      if (share.by_messages != nullptr && share.by_messages->expects() && !share.peer.suspended())
        session_.peers.BeLateToo(share.peer, asked_since_, state_.Traced(state_.rows.size()));
      LeaveOut(share);
    }
  }
}

void RemoteStep::LeaveOutSuspended() {
  if (!session_.peers.any_suspended()) return;
  for (Share& share : shares_) {
    if (share.peer.suspended() && !share.peer.lost() && !share.late && !share.rows->empty())
      LeaveOut(share);
  }
}

bool RemoteStep::GivesUpOn(Share& share, TimePoint now, TimePoint since, const char* what) {
  if (!share.peer.suspended()) {
    if (now < since + session_.peers.PatienceWith(share.peer)) return false;
    session_.peers.BeLate(share.peer, since, state_.Traced(state_.rows.size()), what);
  }
  if (!share.peer.lost()) LeaveOut(share);
  return true;
}

void RemoteStep::StartQueries(int layer, const float* q, NodeId taker) {
  LeaveOutSuspended();
  state_.layer.layer = layer;
  state_.layer.q = q;
  state_.taker = taker;
  sent_queries_ = true;
  for (const Share& share : shares_) {
    if (share.by_messages != nullptr && !share.peer.lost() && !share.late &&
        !share.rows->decode().empty())
      share.by_messages->SendQueries();
  }
}

void RemoteStep::Start(const AttentionValues& values) {
  BeginLayer(values, NodeId{});
  Send();
  asked_since_ = waits_since_ = Clock::now();
}

void RemoteStep::StartFor(NodeId taker, const AttentionValues& values) {
  BeginLayer(values, taker);
  Send();
  asked_.clear();
  for (const Share& share : shares_) {
    if (share.by_messages != nullptr && !share.peer.lost() && !share.late &&
        !share.rows->decode().empty())
      asked_.push_back(share.by_messages->asked());
  }
}

void RemoteStep::Expect(int layer, float* out, std::span<const AskedNode> asked) {
  BeginLayer({.layer = layer, .out = out}, NodeId{});
  asked_since_ = waits_since_ = Clock::now();
  for (const Share& share : shares_) {
    const auto found = std::ranges::find(asked, share.peer.address().node, &AskedNode::node);
    if (found == asked.end() || share.by_messages == nullptr) continue;
    share.by_messages->Expect(*found);
    if (found->on_our_clock && found->posted_ns > 0)
      asked_since_ = std::min(asked_since_, TimePoint(std::chrono::nanoseconds(found->posted_ns)));
  }
}

// Whoever decodes these tokens may do it over another connection, which messages on this one do not
// hold up.
bool RemoteStep::Stored() {
  session_.peers.Poll();
  if (!SendRest(stores_since_)) return false;
  if (std::ranges::any_of(shares_, &Share::pushes)) {
    const TimePoint now = Clock::now();
    stores_since_ = std::min(stores_since_, now);
    bool waits = false;
    for (Share& share : shares_) {
      if (share.pushes()) waits |= !GivesUpOn(share, now, stores_since_, "the end of a push");
    }
    if (waits) return false;
  }
  stores_since_ = TimePoint::max();
  return true;
}

void RemoteStep::BeginLayer(const AttentionValues& values, NodeId taker) {
  state_.layer = values;
  state_.taker = taker;
  state_.partials.BeginLayer(session_.options.layers.SinksOf(values.layer));
  unsent_ = false;
}

void RemoteStep::Send() {
  if (session_.options.wire.overlap && !sent_queries_)
    StartQueries(state_.layer.layer, state_.layer.q, state_.taker);
  if (!sent_queries_) LeaveOutSuspended();
  sent_queries_ = false;
  for (const Share& share : shares_) {
    if (!share.peer.lost() && !share.late && !share.rows->decode().empty()) share.path->Send();
  }
  if (first_prefill_ == state_.rows.size()) return;
  for (Share& share : shares_) {
    share.num_unpushed = share.late ? 0 : share.rows->prefill().size();
    PushPrefill(share);
  }
  AttendPrefill();
}

bool RemoteStep::Unsent(const Share& share) {
  return !share.peer.lost() && !share.late && !share.rows->empty() &&
         (share.num_unpushed > 0 || share.peer.lanes().unsent());
}

bool RemoteStep::SendRest(TimePoint& since) {
  const bool waited = unsent_;
  bool pushed = false;
  for (Share& share : shares_) pushed |= PushPrefill(share);
  unsent_ = std::ranges::any_of(shares_, Unsent);
  if (!unsent_ && !waited) return true;
  const TimePoint now = Clock::now();
  since = pushed || !unsent_ ? now : std::min(since, now);
  if (!unsent_) return true;
  bool left = false;
  for (Share& share : shares_) {
    if (Unsent(share))
      left |= !GivesUpOn(share, now, since,
                         share.num_unpushed > 0 ? "a push slot" : "room to send q, k and v");
  }
  if (left) return false;
  unsent_ = false;
  since = now;
  return true;
}

bool RemoteStep::PushPrefill(Share& share) {
  bool pushed = false;
  while (share.num_unpushed > 0 && !share.peer.lost()) {
    const std::optional<uint32_t> slot = share.peer.FreePushSlot();
    if (!slot) break;
    PushRows(share, *slot, std::min<size_t>(kMaxPushRows, share.num_unpushed));
    pushed = true;
  }
  return pushed;
}

void RemoteStep::PushRows(Share& share, uint32_t slot, size_t count) {
  const size_t first = share.rows->prefill().size() - share.num_unpushed;
  const WireShape& wire = share.peer.wire();
  const RowParts rows = share.rows->KvHeads(std::span(share.rows->prefill()).subspan(first, count));
  const std::array<PackedParts, 2> kv = {
      PackedParts{state_.layer.k, rows, wire.kv_dtype, wire.head_dim},
      PackedParts{state_.layer.v, rows, wire.kv_dtype, wire.head_dim}};
  Lanes& lanes = share.peer.lanes();
  std::byte* const payload = lanes.payload(MessageKind::kPush, slot).data();
  const auto bytes = static_cast<size_t>(session_.device.Pack(kv, payload) - payload);
  const Status posted = lanes.Post(MessageKind::kPush, slot, state_.Header(first, count), bytes);
  if (!posted.ok()) return share.peer.Lose(posted.message());
  share.num_unpushed -= count;
  state_.traffic.sent_bytes += static_cast<int64_t>(sizeof(MessageHeader) + bytes);
}

void RemoteStep::AttendPrefill() {
  FailRowsOfLost();  // they need no attention
  const RemoteAttentionOptions& options = session_.options;
  const size_t q = first_prefill_ * options.wire.q_row_elements(),
               kv = first_prefill_ * options.wire.kv_row_elements();
  const AttentionValues& all = state_.layer;
  session_.prefill->Attend({.layer = all.layer - options.own_layers.first,
                            .q = all.q + q,
                            .k = all.k + kv,
                            .v = all.v + kv,
                            .out = all.out + q},
                           state_.id, state_.rows.subspan(first_prefill_), state_.failures);
}

TimePoint RemoteStep::patience_ends() const {
  TimePoint end = TimePoint::max();
  for (const Share& share : shares_) {
    const Clock::duration patience = session_.peers.PatienceWith(share.peer);
    if (waits_since_ != TimePoint::max() && (share.path->missing() || Unsent(share)))
      end = std::min(end, waits_since_ + patience);
    if (stores_since_ != TimePoint::max() && (share.pushes() || Unsent(share)))
      end = std::min(end, stores_since_ + patience);
  }
  return end;
}

bool RemoteStep::fetching() const {
  return std::ranges::any_of(shares_, [](const Share& share) { return share.path->fetching(); });
}

bool RemoteStep::Finish() {
  session_.peers.Poll();
  if (!SendRest(waits_since_)) return false;
  const auto missing = [](const Share& share) { return share.path->missing(); };
  if (std::ranges::any_of(shares_, missing)) {
    const TimePoint now = Clock::now();
    bool waits = false;
    for (Share& share : shares_) {
      if (missing(share)) waits |= !GivesUpOn(share, now, waits_since_, "the attention output");
    }
    if (waits) return false;
  }
  bool waits_here = false;  // whether this host has waited, and not a device
  for (const Share& share : shares_) waits_here |= share.path->Await();
  if (fetching()) return false;
  // In the peers' order, so that sums do not depend on who answered first.
  for (const Share& share : shares_) share.path->Take();
  if (!state_.partials.empty()) state_.partials.CopyTo(session_.device, state_.layer.out);
  FailRowsOfLost();
  if (waits_here) {
    const Clock::duration waited = Clock::now() - asked_since_;
    state_.traffic.wait_us += std::chrono::duration_cast<microseconds>(waited).count();
    for (const Share& share : shares_) {
      if (!share.late && !share.rows->decode().empty()) share.peer.Answered(waited);
    }
  }
  waits_since_ = TimePoint::max();
  state_.traffic.stale_messages += session_.peers.TakeStale();
  return true;
}

}  // namespace lamina
