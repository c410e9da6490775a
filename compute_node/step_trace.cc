#include "compute_node/step_trace.h"

#include <algorithm>
#include <utility>

namespace lamina {
namespace {

// Shorter gaps are the way from one piece of work to the next, and no bubbles.
constexpr int64_t kMinBubbleNs = 1000;

}  // namespace

StepTrace::StepTrace(size_t num_records) : ring_(num_records) {}

void StepTrace::BeginStep(bool timed) {
  on_ = timed;
  if (num_under_way_++ == 0) idle_since_ns_ = Now();
}

void StepTrace::EndStep(const TracedWork& of, int64_t begun_ns) {
  if (--num_under_way_ == 0) idle_since_ns_ = 0;
  if (on_ && begun_ns != 0) Write(StepWork::kStep, NodeId{}, of, {begun_ns, NowNs()}, sums_);
}

int64_t StepTrace::Ran(StepWork work, const TracedWork& of, int64_t start_ns) {
  const int64_t now = Now();
  if (now != 0 && start_ns != 0) {
    if (idle_since_ns_ != 0 && idle_since_ns_ + kMinBubbleNs <= start_ns)
      Write(StepWork::kBubble, NodeId{}, of, {idle_since_ns_, start_ns}, sums_);
    Write(work, NodeId{}, of, {start_ns, now}, sums_);
  }
  idle_since_ns_ = now;
  return now;
}

void StepTrace::Answered(NodeId node, const TracedWork& of, int64_t posted_ns,
                         const ReplyTimes& times) {
  const int64_t taken = Now();
  if (taken == 0 || posted_ns == 0) return;
  Peer& peer = PeerOf(node);
  peer.clock.Add(times.clock, {posted_ns, times.noticed_ns, times.done_ns, taken});
  if (!peer.clock.known()) return;
  // The memory node's work lies between the post and the take. The estimate of its clock may be
  // wrong and put the work outside of these, so it is moved in between.
  const int64_t busy = std::min(times.done_ns - times.noticed_ns, taken - posted_ns);
  const int64_t noticed = std::clamp(peer.clock.ToHere(times.noticed_ns), posted_ns, taken - busy);
  const int64_t done = noticed + busy,
                started = std::min(noticed + (times.started_ns - times.noticed_ns), done);
  if (times.bubble_ns > 0)
    Write(StepWork::kBubble, node, of, {started - times.bubble_ns, started}, peer.sums);
  Write(StepWork::kQWire, node, of, {posted_ns, noticed}, peer.sums);
  Write(StepWork::kQueue, node, of, {noticed, started}, peer.sums);
  Write(StepWork::kAttention, node, of, {started, done}, peer.sums);
  Write(StepWork::kOutputWire, node, of, {done, taken}, peer.sums);
}

void StepTrace::AnsweredAnother(NodeId node, const ReplyTimes& times) {
  if (!on_) return;
  StepTimes& sums = PeerOf(node).sums;
  sums.Add(StepWork::kQueue, times.started_ns - times.noticed_ns);
  sums.Add(StepWork::kAttention, times.done_ns - times.started_ns);
}

void StepTrace::TellTimes(StepResult& result) {
  if (!on_) return;
  result.times.push_back({NodeId{}, std::exchange(sums_, {})});
  for (Peer& peer : peers_) result.times.push_back({peer.node, std::exchange(peer.sums, {})});
}

void StepTrace::TellRecords(size_t max_records, TraceAnswer& answer) {
  const uint64_t oldest = std::max(taken_, written_ - std::min<uint64_t>(written_, ring_.size()));
  const uint64_t end = std::min(written_, oldest + max_records);
  answer.num_lost = oldest - taken_;
  std::string& bytes = answer.records;
  bytes.reserve(static_cast<size_t>(end - oldest) * sizeof(StepRecord));
  // In two pieces if the records go over the ring's end.
  for (taken_ = oldest; taken_ < end;) {
    const size_t at = taken_ % ring_.size(),
                 count = std::min(ring_.size() - at, static_cast<size_t>(end - taken_));
    bytes += EncodeRecords(std::span(ring_).subspan(at, count));
    taken_ += count;
  }
  answer.more = end < written_;
  answer.clock = ClockId();
  for (const Peer& peer : peers_) {
    if (peer.clock.known()) answer.peers.push_back({peer.node, peer.clock.error_ns()});
  }
}

StepTrace::Peer& StepTrace::PeerOf(NodeId node) {
  const auto found = std::ranges::find(peers_, node, &Peer::node);
  if (found != peers_.end()) return *found;
  peers_.push_back({node, {}, {}});
  return peers_.back();
}

void StepTrace::Write(StepWork work, NodeId node, const TracedWork& of, Interval when,
                      StepTimes& sums) {
  sums.Add(work, when.end_ns - when.start_ns);
  ring_[written_++ % ring_.size()] = {.start_ns = when.start_ns,
                                      .end_ns = when.end_ns,
                                      .step = of.step.value,
                                      .node = node.value,
                                      .rows = static_cast<uint32_t>(of.rows),
                                      .layer = static_cast<uint16_t>(of.layer),
                                      .work = work,
                                      .batch = static_cast<uint8_t>(of.batch)};
}

}  // namespace lamina
