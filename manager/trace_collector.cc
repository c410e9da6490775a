#include "manager/trace_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace lamina {
namespace {

// A compute node's ring holds a second of the shortest steps.
constexpr auto kInterval = milliseconds(50);
constexpr auto kLostAfter = std::chrono::seconds(2);

}  // namespace

TraceCollector::TraceCollector(TraceFile& file, uint64_t epoch, const std::vector<Node>& nodes,
                               Ask ask)
    : file_(file), epoch_(epoch), nodes_(nodes), ask_(std::move(ask)) {
  for (const Node& node : nodes_) {
    file_.Name(node.id, node.name);
    if (node.compute) sources_[node.id];
  }
}

void TraceCollector::Start() {
  thread_ = std::thread([this] { Run(); });
}

TraceCollector::~TraceCollector() { Finish(Deadline::After(milliseconds(0))); }

void TraceCollector::Take(NodeId from, TraceAnswer answer) {
  const int64_t now = NowNs();
  MutexLock lock(mutex_);
  answers_.push_back({from, std::move(answer), now});
  changed_.NotifyAll();
}

void TraceCollector::Finish(Deadline deadline) {
  {
    MutexLock lock(mutex_);
    if (finishing_) return;
    finishing_ = true;
    deadline_ = deadline;
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  if (num_lost_ > 0)
    LAMINA_LOG_WARN(
        "the trace lacks {} records that compute nodes made faster than they were fetched",
        num_lost_);
}

void TraceCollector::Run() {
  std::deque<Answer> answers;
  bool finishing = false;
  Deadline deadline(TimePoint::max());
  const auto open = [&](const auto& entry) { return !entry.second.complete && !entry.second.gone; };
  while (!finishing || (!deadline.Passed() && std::ranges::any_of(sources_, open))) {
    AskAll();
    if (!WaitForAnswers(answers, deadline) && !std::exchange(finishing, true)) {
      finish_from_ns_ = NowNs();
      for (auto& [node, source] : sources_) source.asked = false;
    }
    for (; !answers.empty(); answers.pop_front()) Write(answers.front());
  }
}

bool TraceCollector::WaitForAnswers(std::deque<Answer>& answers, Deadline& deadline) {
  MutexLock lock(mutex_);
  const bool was_finishing = finish_from_ns_ != INT64_MAX;
  const TimePoint latest = Clock::now() + kInterval;
  while (answers_.empty() && finishing_ == was_finishing && changed_.WaitUntil(lock, latest)) {
  }
  answers.swap(answers_);
  deadline = deadline_;
  return !finishing_;
}

void TraceCollector::AskAll() {
  const TimePoint now = Clock::now();
  for (auto& [node, source] : sources_) {
    if (source.gone || source.complete ||
        (now < source.ask_at && (source.asked || finish_from_ns_ == INT64_MAX)))
      continue;
    source.gone = !ask_(node, {epoch_, NowNs()}).ok();
    source.asked = true;
    source.ask_at = now + kLostAfter;
  }
}

void TraceCollector::Write(const Answer& answer) {
  const auto found = sources_.find(answer.from);
  std::optional<std::vector<StepRecord>> records = DecodeRecords(answer.trace.records);
  if (found == sources_.end() || answer.trace.epoch != epoch_ || !records) {
    LAMINA_LOG_ERROR(
        "node {}: dropped an answer with records that is malformed or of another epoch",
        answer.from.value);
    return;
  }
  Source& source = found->second;
  const TraceAnswer& trace = answer.trace;
  source.clock.Add(trace.clock,
                   {trace.asked_ns, trace.received_ns, trace.answered_ns, answer.taken_ns});
  source.asked = false;
  source.ask_at =
      Clock::now() + (trace.more ? Clock::duration::zero() : Clock::duration(kInterval));
  source.complete = !trace.more && trace.asked_ns >= finish_from_ns_;
  num_lost_ += trace.num_lost;
  if (!source.clock.known()) return;
  for (StepRecord& record : *records) {
    const int64_t duration_ns = record.end_ns - record.start_ns;
    record.start_ns = source.clock.ToHere(record.start_ns);
    record.end_ns = record.start_ns + duration_ns;
  }
  NamePeers(trace);
  const bool was_full = file_.full();
  file_.Add(answer.from, *records);
  if (!was_full && file_.full())
    LAMINA_LOG_WARN("the trace file is full: it lacks what comes from now on");
}

// A process whose times are estimated says so in its name. Estimates change all the time: the first
// one stands.
void TraceCollector::NamePeers(const TraceAnswer& trace) {
  for (const PeerClock& peer : trace.peers) {
    const auto node = std::ranges::find(nodes_, peer.node, &Node::id);
    if (node == nodes_.end() || peer.error_ns == 0 || !estimated_.insert(node->id).second) continue;
    file_.Name(node->id, fmt::format("{} (clock estimated, +-{:.0f} us)", node->name,
                                     static_cast<double>(peer.error_ns) * 1e-3));
  }
}

}  // namespace lamina
