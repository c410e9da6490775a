#include "plan/simulate/virtual_nodes.h"

#include <algorithm>

#include "cost/overlap.h"
#include "wire/step_times.h"

namespace lamina {
namespace {

constexpr int64_t kHeaderBytes = sizeof(MessageHeader), kTimesBytes = sizeof(ReplyTimes);

Clock::duration Scaled(Clock::duration time, double factor) {
  return factor == 1 ? time : FromSeconds(SecondsOf(time) * factor);
}

// Of `tokens` on a node that are of the row's sequence.
int64_t Attended(int64_t tokens, int64_t position, const AttentionWindow& window) {
  return std::min(tokens, window.NumAttended(position));
}

}  // namespace

VirtualNodes::VirtualNodes(const ClusterModel& cluster, const HostCosts& host, bool prompts_appear,
                           EventQueue& events, UsageTimeline& usage)
    : cluster_(cluster),
      host_(host),
      prompts_appear_(prompts_appear),
      events_(events),
      usage_(usage),
      placement_(cluster.PlacementAmong(static_cast<int>(cluster.compute.size()))) {
  const ClusterConfig& config = cluster.config;
  // A message is noticed after the modelled latency or after the host's, whichever is longer.
  link_ = {std::max(config.modelled_latency, FromMicroseconds(host.message_us)),
           config.modelled_gb_per_s * 1e9};
  overlap_ = config.overlap == Switch::kOn;
  for (const ComputeNodeModel& node : cluster.compute) {
    auto known = std::find_if(slice_times_.begin(), slice_times_.end(),
                              [&](const auto& entry) { return entry.first == node.device; });
    if (known == slice_times_.end())
      known = slice_times_.insert(
          known, {node.device, std::make_unique<SliceTimes>(cluster, *node.device)});
    Compute& compute = compute_.emplace_back();
    compute.model = &node;
    compute.times = known->second.get();
    // Whether there can be one was seen when the cluster was loaded.
    if (node.offload.any()) {
      compute.links = {LinkOf(node.offload.bus)};
      compute.ring = *VirtualRing::Create(cluster, node, compute.links.front());
    }
    if (node.kv_offload.any()) {
      const auto in = compute.links.emplace_back(std::make_shared<VirtualCopyLink>()),
                 out = compute.links.emplace_back(std::make_shared<VirtualCopyLink>());
      compute.kv_out = out;
      compute.kv_ring = *VirtualRing::CreateForKv(
          cluster, node, cluster.kv_nodes.front().capacity_tokens, {in, out});
    }
    if (cluster.kv_baseline.any()) {
      compute.kv_baseline =
          *KvBaselineNode::Create(cluster.kv_baseline, *node.device, cluster.heads,
                                  cluster.model.num_layers, cluster.windows, config.num_batches);
    }
    compute.nics.resize(static_cast<size_t>(config.tensor_parallel_size));
    left_.push_back(static_cast<int>(left_.size()));
  }
  for (const MemoryNodeModel& node : cluster.memory) {
    memory_.emplace_back().model = &node;
    group_of_.emplace(node.id, node.group);
  }
  if (cluster.memory.empty()) group_of_.emplace(cluster.kv_nodes.front().id, 0);
  batches_.resize(static_cast<size_t>(config.num_batches));
  rows_of_group_.resize(cluster.kv_nodes.size());
}

int VirtualNodes::PlaceOf(int number, int slice) const {
  const bool rotates = batches_[static_cast<size_t>(number)].rotates;
  return left_[static_cast<size_t>(placement_.RunnerOf(number, slice, rotates))];
}

size_t VirtualNodes::WindowBefore(int slice) const {
  const int attention = cluster_.sliced.slices[static_cast<size_t>(slice - 1)].attention;
  return cluster_.window_of_layer[static_cast<size_t>(
      cluster_.sliced.attentions[static_cast<size_t>(attention)].layer)];
}

std::shared_ptr<VirtualCopyLink> VirtualNodes::LinkOf(const std::string& bus) {
  if (bus.empty()) return std::make_shared<VirtualCopyLink>();
  std::shared_ptr<VirtualCopyLink>& link = buses_[bus];
  if (link == nullptr) link = std::make_shared<VirtualCopyLink>();
  return link;
}

void VirtualNodes::SlowLink(size_t node, double factor) {
  Compute& compute = compute_[node];
  compute.link_slow = factor;
  for (const std::shared_ptr<VirtualCopyLink>& link : compute.links) link->Slow(factor);
  if (compute.kv_baseline != nullptr) compute.kv_baseline->SlowLink(factor);
}

void VirtualNodes::WriteThrough(Compute& compute, int64_t num_tokens) const {
  const int64_t capacity =
      compute.model->kv_offload.is_elastic()
          ? elastic_kv().begin()->second.Tokens(compute.kv_ring->inside().num_layers)
          : cluster_.kv_nodes.front().capacity_tokens;
  const double share = static_cast<double>(num_tokens) / static_cast<double>(capacity);
  compute.kv_out->Slow(compute.link_slow * std::clamp(share, 1e-9, 1.0));
}

int VirtualNodes::largest_interval() const {
  int largest = 0;
  for (const Compute& compute : compute_) {
    if (compute.ring == nullptr || !compute.model->offload.is_auto) continue;
    const int of_node = compute.ring->first_interval();
    if (of_node > 0) largest = largest == 0 ? of_node : std::min(largest, of_node);
  }
  return largest;
}

std::map<NodeId, ElasticKv> VirtualNodes::elastic_kv() const {
  std::map<NodeId, ElasticKv> caches;
  for (const ComputeNodeModel& node : cluster_.compute) {
    if (!node.kv_offload.is_elastic()) continue;
    // Whether there can be one was seen when the cluster was loaded.
    caches.emplace(node.id, *ElasticKvOf(node.kv_offload, cluster_.model.num_layers,
                                         cluster_.kv_nodes.front().capacity_tokens));
  }
  return caches;
}

std::map<NodeId, LayersInside> VirtualNodes::layers_inside() const {
  std::map<NodeId, LayersInside> inside;
  for (const Compute& compute : compute_) {
    if (compute.model->kv_offload.is_elastic())
      inside.emplace(compute.model->id, compute.kv_ring->inside());
  }
  return inside;
}

void VirtualNodes::Submit(const StepPlan& plan, TimePoint at) {
  for (Compute& compute : compute_) {
    if (const auto inside = plan.layers_inside.find(compute.model->id);
        inside != plan.layers_inside.end())
      compute.kv_ring->SetInside(inside->second);
  }
  if (plan.offload_interval) {
    for (Compute& compute : compute_) {
      if (compute.ring != nullptr) compute.ring->SetInterval(*plan.offload_interval);
    }
  }
  Batch& batch = batches_[static_cast<size_t>(plan.batch)];
  batch.rotates = plan.rotates;
  batch.rows = batch.prefill_rows = batch.sampled = 0;
  for (const Work& work : plan.work) {
    if (work.prefill && prompts_appear_) continue;
    const int64_t tokens = std::ssize(work.tokens);
    batch.rows += tokens;
    if (work.prefill) batch.prefill_rows += tokens;
    if (work.sample) ++batch.sampled;
  }
  if (cluster_.kv_write_through) WriteThrough(compute_.front(), batch.rows);
  CollectRows(plan, batch);
  batch.pushed.clear();
  batch.own_attention.assign(cluster_.windows.size(), Clock::duration::zero());
  if (cluster_.memory.empty()) {
    AddOwnAttention(plan, batch,
                    [this](const Work& work) { return !work.prefill || !prompts_appear_; });
  } else if (batch.prefill_rows > 0) {
    AddPrefill(plan, batch);
  }
  batch.cost = {};
  batch.cost.rows = static_cast<double>(batch.rows);
  batch.cost.wires = 0;
  batch.generation = generation_;
  if (KvBaselineNode* const baseline = compute_.front().kv_baseline.get(); baseline != nullptr)
    at = baseline->Begin(plan, at);
  events_.Push(at, VirtualEvent::Kind::kOrder, plan.batch, generation_);
}

void VirtualNodes::CollectRows(const StepPlan& plan, Batch& batch) {
  for (const Work& work : plan.work) {
    if (work.prefill) continue;
    for (const KvPart& part : work.route) {
      const size_t group = group_of_.at(part.node);
      std::vector<Row>& rows = rows_of_group_[group];
      if (rows.empty()) groups_.push_back(group);
      // One row per new token on this node; a part that gets none has a row too, which attends to
      // what is stored there.
      const auto stores = static_cast<int64_t>(part.slots.size());
      for (int64_t i = 0; i < std::max<int64_t>(stores, 1); ++i)
        rows.push_back({part.num_stored, part.num_stored + i + (stores > 0 ? 1 : 0),
                        work.first_position + i, stores > 0,
                        work.route.size() > 1 || cluster_.model.attention_sinks});
    }
  }
  std::sort(groups_.begin(), groups_.end());
  batch.asked.clear();
  for (const size_t group : groups_) {
    for (const size_t memory : cluster_.of_group[group]) {
      if (memory_[memory].lost) continue;
      const std::vector<Row>& rows = rows_of_group_[group];
      Asked& asked = batch.asked.emplace_back();
      asked.memory = memory;
      asked.rows = std::ssize(rows);
      asked.begun = RowsBegunEarly(asked.rows);
      for (const Row& row : rows) {
        asked.stores += row.stores ? 1 : 0;
        asked.wants_lse |= row.wants_lse;
      }
    }
  }
  batch.attention.clear();
  for (const AttentionWindow& window : cluster_.windows) {
    for (const Asked& asked : batch.asked) {
      const MemoryNodeModel& memory = *memory_[asked.memory].model;
      batch.attention.push_back(TimesOf(memory, rows_of_group_[memory.group], window));
    }
  }
  for (const size_t group : groups_) rows_of_group_[group].clear();
  groups_.clear();
}

VirtualNodes::AttentionTimes VirtualNodes::TimesOf(const MemoryNodeModel& memory,
                                                   const std::vector<Row>& rows,
                                                   const AttentionWindow& window) const {
  AttentionTimes times;
  AttentionLoad whole, first, more, rest;
  const int64_t begun = RowsBegunEarly(std::ssize(rows));
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const Row& row = rows[static_cast<size_t>(i)];
    const int64_t tokens = Attended(row.tokens, row.position, window);
    times.tokens += tokens;
    if (!overlap_) {
      whole.AddDecode(tokens);
    } else if (i < begun) {
      first.AddDecode(Attended(row.before, row.position, window));
      if (row.stores) more.AddDecode(row.tokens - row.before);
    } else {
      rest.AddDecode(tokens);
    }
  }
  const auto time = [&](const AttentionLoad& load) {
    return FromSeconds(AttentionSeconds(*memory.device, memory.heads, load));
  };
  if (!overlap_) {
    times.whole = time(whole);
    return times;
  }
  times.first = time(first);
  times.more = time(more);
  times.rest = time(rest);
  return times;
}

// Prompts are attended to on the compute node, and their K and V are pushed to the memory nodes.
void VirtualNodes::AddPrefill(const StepPlan& plan, Batch& batch) {
  AddOwnAttention(plan, batch, [](const Work& work) { return work.prefill; });
  for (const Work& work : plan.work) {
    if (!work.prefill) continue;
    for (const KvPart& part : work.route) {
      for (const size_t memory : cluster_.of_group[group_of_.at(part.node)])
        batch.pushed.push_back({memory, std::ssize(part.slots)});
    }
  }
  // The chunks of several prompts for one memory node go in one push.
  std::stable_sort(batch.pushed.begin(), batch.pushed.end(),
                   [](const Pushed& a, const Pushed& b) { return a.memory < b.memory; });
  size_t last = 0;
  for (size_t i = 1; i < batch.pushed.size(); ++i) {
    if (batch.pushed[i].memory == batch.pushed[last].memory) {
      batch.pushed[last].tokens += batch.pushed[i].tokens;
    } else {
      batch.pushed[++last] = batch.pushed[i];
    }
  }
  batch.pushed.resize(last + 1);
}

template <typename Counts>
void VirtualNodes::AddOwnAttention(const StepPlan& plan, Batch& batch, Counts counts) {
  std::vector<AttentionLoad> loads(cluster_.windows.size());
  for (const Work& work : plan.work) {
    if (!counts(work)) continue;
    // A row that decodes is a prompt's chunk of one token, as it is for a compute node that keeps
    // KV.
    for (size_t w = 0; w < loads.size(); ++w)
      loads[w].AddPrefill(work.first_position, std::ssize(work.tokens), cluster_.windows[w]);
  }
  const DeviceSpec& device = *compute_[static_cast<size_t>(PlaceOf(plan.batch, 0))].model->device;
  for (size_t w = 0; w < loads.size(); ++w)
    batch.own_attention[w] = FromSeconds(AttentionSeconds(device, cluster_.heads, loads[w]));
}

void VirtualNodes::Handle(const VirtualEvent& event) {
  // A compute node was lost since, and this never happens.
  if (event.generation != generation_) return;
  switch (event.kind) {
    case VirtualEvent::Kind::kOrder: {
      Batch& batch = batches_[static_cast<size_t>(event.index)];
      batch.under_way = true;
      batch.slice = 0;
      batch.part = 0;
      batch.node = PlaceOf(event.index, 0);
      batch.ready_at = event.at;
      batch.pushes_done = event.at;
      if (batch.rows == 0) return EndStep(event.index, event.at);
      return Advance(batch.node, event.at);
    }
    case VirtualEvent::Kind::kAdvance: return Advance(event.index, event.at);
    case VirtualEvent::Kind::kQueries: return PostQueries(event.index, event.at);
    case VirtualEvent::Kind::kRows: return PostRows(event.index, event.at);
    default: return;
  }
}

void VirtualNodes::Advance(int node, TimePoint now) {
  Compute& compute = compute_[static_cast<size_t>(node)];
  if (compute.ring != nullptr) compute.ring->GoOn(now);
  if (compute.kv_ring != nullptr) compute.kv_ring->GoOn(now);
  // There is another kAdvance for when it is not busy any more.
  if (compute.busy_until > now) return;
  const int num_batches = static_cast<int>(batches_.size());
  int next = -1;
  for (int i = 1; i <= num_batches; ++i) {
    const int number = (compute.last + i) % num_batches;
    const Batch& batch = batches_[static_cast<size_t>(number)];
    if (!batch.under_way || batch.node != node || batch.ready_at > now) continue;
    // As in StepRunner::NextReady: in turn, but where batches rotate the first slice of a step goes
    // ahead.
    const bool first = batch.rotates && batch.slice == 0 && batch.part == 0;
    if (next < 0 || first) next = number;
    if (first) break;
  }
  if (next < 0) return;
  compute.last = next;
  RunPart(next, now);
}

void VirtualNodes::RunPart(int number, TimePoint now) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  Compute& compute = compute_[static_cast<size_t>(batch.node)];
  const Slice& slice = cluster_.sliced.slices[static_cast<size_t>(batch.slice)];
  const bool is_last = slice.attention < 0;
  // The last slice runs for the rows that are sampled only.
  const int64_t rows = is_last ? batch.sampled : batch.rows;
  const std::vector<SlicePart>& parts = compute.times->Of(batch.slice, rows);
  const SlicePart& part = parts[batch.part];
  const Clock::duration time = Scaled(part.time, compute.slow);
  const bool needs_weights = compute.ring != nullptr && batch.rows > 0;
  const TimePoint start =
      needs_weights && batch.part == 0 ? compute.ring->Enter(batch.slice, now) : now;
  const TimePoint done = compute.device.Book(start, time);
  if (needs_weights && batch.part + 1 == parts.size()) compute.ring->Leave(batch.slice, done);
  batch.ready_at = kNever;
  batch.cost.slices += SecondsOf(time + (start - now));
  compute.busy_s += SecondsOf(time);
  usage_.AddBusy(&UsageTimeline::Piece::compute_s, done - time, done);
  // An all-reduce follows; the node can run another batch meanwhile.
  if (batch.part + 1 < parts.size()) {
    const auto element = static_cast<int64_t>(ElementSize(cluster_.wire_dtype));
    ++batch.part;
    batch.ready_at = AddUp(compute, element * rows * part.sum_elements, done);
    compute.busy_until = done;
    events_.Push(done, VirtualEvent::Kind::kAdvance, batch.node, generation_);
    events_.Push(batch.ready_at, VirtualEvent::Kind::kAdvance, batch.node, generation_);
    return;
  }
  if (is_last) {
    TimePoint end =
        done + FromMicroseconds(host_.sample_row_us * static_cast<double>(batch.sampled));
    if (compute_.size() > 1) end = std::max(end, batch.pushes_done);
    compute.busy_until = end;
    events_.Push(end, VirtualEvent::Kind::kAdvance, batch.node, generation_);
    return EndStep(number, end);
  }
  // The host gathers q, k and v when the slice is done; with overlap q is posted before, as soon as
  // it is complete.
  const Clock::duration gathering =
      FromMicroseconds(host_.layer_us + host_.layer_row_us * static_cast<double>(batch.rows));
  const Clock::duration posting = gathering + PostingTime(batch);
  batch.cost.slices += SecondsOf(posting);
  // PostRows sets it when it knows.
  compute.busy_until = kNever;
  TimePoint host_free = done;
  if (overlap_ && !batch.asked.empty()) {
    const TimePoint has_q =
        part.has_q ? std::max(now, done - Scaled(part.behind_q, compute.slow)) : done;
    const TimePoint sent_q = has_q + PostingTime(batch);
    events_.Push(sent_q, VirtualEvent::Kind::kQueries, number, generation_);
    host_free = std::max(done, sent_q);
  }
  events_.Push(host_free + posting, VirtualEvent::Kind::kRows, number, generation_);
}

Clock::duration VirtualNodes::PostingTime(const Batch& batch) const {
  return FromMicroseconds(host_.post_us * static_cast<double>(batch.asked.size()));
}

void VirtualNodes::EndStep(int number, TimePoint at) {
  batches_[static_cast<size_t>(number)].under_way = false;
  events_.Push(at, VirtualEvent::Kind::kResult, number, generation_);
}

// The device, and the host thread that waits for it, do one piece after another.
TimePoint VirtualNodes::Attend(Memory& memory, TimePoint ready, Clock::duration time,
                               int64_t rows) {
  const Clock::duration scaled = Scaled(time, memory.slow);
  const double host_us =
      rows == 0 ? 0 : host_.attend_us + host_.attend_row_us * static_cast<double>(rows);
  const double seconds = SecondsOf(scaled);
  memory.busy_s += seconds;
  memory.attention_us += seconds * 1e6;
  const TimePoint done = memory.device.Book(ready, scaled + FromMicroseconds(host_us));
  usage_.AddBusy(&UsageTimeline::Piece::memory_s, done - scaled, done);
  return done;
}

void VirtualNodes::PostQueries(int number, TimePoint now) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  Compute& from = compute_[static_cast<size_t>(batch.node)];
  const size_t window = WindowBefore(batch.slice + 1) * batch.asked.size();
  for (size_t i = 0; i < batch.asked.size(); ++i) {
    const Asked& asked = batch.asked[i];
    Memory& memory = memory_[asked.memory];
    if (memory.lost) continue;
    const int64_t bytes =
        kHeaderBytes + asked.rows * static_cast<int64_t>(memory.model->wire.q_row_bytes());
    VirtualNic& nic = from.nics[static_cast<size_t>(memory.model->rank)];
    Attend(memory, Carry(link_, nic, memory.nic, now, bytes), batch.attention[window + i].first,
           asked.begun);
  }
}

// Returns when the outputs are at the compute node that runs the next slice.
TimePoint VirtualNodes::Ask(const Asked& asked, const AttentionTimes& times, Compute& from,
                            Compute& to, TimePoint now) {
  Memory& memory = memory_[asked.memory];
  const WireShape& wire = memory.model->wire;
  const auto rank = static_cast<size_t>(memory.model->rank);
  const auto q_bytes = static_cast<int64_t>(wire.q_row_bytes());
  const int64_t kv_bytes = asked.stores * 2 * static_cast<int64_t>(wire.kv_row_bytes());
  int64_t reply_bytes = kHeaderBytes + kTimesBytes + asked.rows * q_bytes;
  if (asked.wants_lse) reply_bytes += asked.rows * static_cast<int64_t>(wire.lse_row_bytes());
  const int64_t sent_bytes = kHeaderBytes + kv_bytes + (overlap_ ? 0 : asked.rows * q_bytes);
  const TimePoint here = Carry(link_, from.nics[rank], memory.nic, now, sent_bytes);
  ++memory.messages;
  memory.tokens += times.tokens;
  if (!overlap_)
    return Carry(link_, memory.nic, to.nics[rank], Attend(memory, here, times.whole, asked.rows),
                 reply_bytes);
  const TimePoint begun = Attend(memory, here, times.more, asked.stores > 0 ? asked.begun : 0);
  // With few rows all have begun early, and there is one reply.
  if (asked.begun == asked.rows) return Carry(link_, memory.nic, to.nics[rank], begun, reply_bytes);
  // The outputs of rows that began early go ahead while the rest is attended to.
  const int64_t early_bytes = asked.begun * q_bytes;
  const TimePoint early = Carry(link_, memory.nic, to.nics[rank], begun, early_bytes);
  const TimePoint done = Attend(memory, begun, times.rest, asked.rows - asked.begun);
  return std::max(early, Carry(link_, memory.nic, to.nics[rank], done, reply_bytes - early_bytes));
}

void VirtualNodes::PostRows(int number, TimePoint now) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  const int next = PlaceOf(number, batch.slice + 1);
  Compute& from = compute_[static_cast<size_t>(batch.node)];
  Compute& to = compute_[static_cast<size_t>(next)];
  const size_t window = WindowBefore(batch.slice + 1);
  TimePoint ready = now;
  double longest = 0, wire = 0, sent = 0;
  for (size_t i = 0; i < batch.asked.size(); ++i) {
    const Asked& asked = batch.asked[i];
    const Memory& memory = memory_[asked.memory];
    if (memory.lost) continue;
    const AttentionTimes& times = batch.attention[window * batch.asked.size() + i];
    const TimePoint answered = Ask(asked, times, from, to, now);
    const double seconds =
        SecondsOf(times.whole + times.first + times.more + times.rest) * memory.slow;
    const WireShape& shape = memory.model->wire;
    // The part of the wait that is not attention is the network's, and queues'. The manager chooses
    // the pipeline by these costs.
    longest = std::max(longest, seconds);
    wire = std::max(wire, SecondsOf(answered - now) - seconds);
    sent += static_cast<double>(asked.rows) * static_cast<double>(shape.q_row_bytes()) +
            2 * static_cast<double>(asked.stores) * static_cast<double>(shape.kv_row_bytes());
    ready = std::max(ready, answered);
  }
  batch.cost.attention += longest;
  batch.cost.wires = batch.cost.wires.value_or(0) + std::max(wire, 0.0);
  TimePoint end = Push(batch, from, now);
  for (const Pushed& pushed : batch.pushed)
    sent += 2 * static_cast<double>(pushed.tokens) *
            static_cast<double>(memory_[pushed.memory].model->wire.kv_row_bytes());
  // All ranks send as much, so one of them stands for the node.
  if (link_.bytes_per_s > 0) {
    const double seconds = sent / link_.bytes_per_s / static_cast<double>(from.nics.size());
    from.network_s += seconds;
    const TimePoint sent_all = from.nics.front().egress.free_at();
    usage_.AddBusy(&UsageTimeline::Piece::network_s, sent_all - FromSeconds(seconds), sent_all);
  }
  // The compute node attends itself after it has posted.
  if (Clock::duration own = Scaled(batch.own_attention[window], from.slow);
      own > Clock::duration::zero()) {
    const int layer = batch.slice;
    if (from.kv_ring != nullptr) end = from.kv_ring->Enter(layer, end);
    if (from.kv_baseline != nullptr) {
      const KvBaselineNode::Piece piece = from.kv_baseline->Attend(number, layer, window, own, end);
      end = piece.start;
      own = piece.time;
    }
    end = from.device.Book(end, own);
    if (from.kv_ring != nullptr) from.kv_ring->Leave(layer, end, /*changed=*/true);
    from.busy_s += SecondsOf(own);
    usage_.AddBusy(&UsageTimeline::Piece::compute_s, end - own, end);
  }
  // The next slice runs elsewhere: the context goes there, when K and V of prompts are stored.
  if (next != batch.node) {
    end = std::max(end, batch.pushes_done);
    // The attention output of prompts was computed here, and goes along with the context.
    int64_t elements =
        batch.prefill_rows * int64_t{cluster_.heads.num_heads} * cluster_.heads.head_dim;
    for (const ValueId value : cluster_.sliced.slices[static_cast<size_t>(batch.slice)].context_out)
      elements += batch.rows * cluster_.sliced.graph.values[static_cast<size_t>(value)].width;
    const int64_t bytes =
        kHeaderBytes + static_cast<int64_t>(ElementSize(cluster_.wire_dtype)) * elements;
    for (size_t rank = 0; rank < from.nics.size(); ++rank)
      ready = std::max(ready, Carry(link_, from.nics[rank], to.nics[rank], end, bytes));
  }
  ++batch.slice;
  batch.part = 0;
  const int here = batch.node;
  batch.node = next;
  batch.ready_at = ready;
  from.busy_until = end;
  events_.Push(end, VirtualEvent::Kind::kAdvance, here, generation_);
  events_.Push(ready, VirtualEvent::Kind::kAdvance, next, generation_);
}

// Returns when the last push of this layer was posted. Each needs one of a few slots and waits for
// the one that is free first.
TimePoint VirtualNodes::Push(Batch& batch, Compute& from, TimePoint now) {
  for (const Pushed& pushed : batch.pushed) {
    Memory& memory = memory_[pushed.memory];
    if (memory.lost) continue;
    if (from.pushes.empty()) from.pushes.resize(memory_.size());
    const auto token_bytes = 2 * static_cast<int64_t>(memory.model->wire.kv_row_bytes());
    for (int64_t left = pushed.tokens; left > 0; left -= kMaxPushRows) {
      auto& slots = from.pushes[pushed.memory];
      TimePoint& slot = *std::min_element(slots.begin(), slots.end());
      now = std::max(now, slot);
      const int64_t bytes = kHeaderBytes + std::min<int64_t>(left, kMaxPushRows) * token_bytes;
      const TimePoint here =
          Carry(link_, from.nics[static_cast<size_t>(memory.model->rank)], memory.nic, now, bytes);
      slot = memory.device.Book(here, Clock::duration::zero()) + link_.latency;
      now += FromMicroseconds(host_.post_us);
      batch.pushes_done = std::max(batch.pushes_done, slot);
    }
  }
  return now;
}

// Each rank sends its partial sums to each of the others.
TimePoint VirtualNodes::AddUp(Compute& node, int64_t bytes, TimePoint now) {
  const auto others = static_cast<int64_t>(node.nics.size()) - 1;
  TimePoint sent = now;
  for (VirtualNic& nic : node.nics)
    sent = std::max(sent, nic.egress.Book(now, link_.CostOf(others * (kHeaderBytes + bytes))));
  return sent + link_.latency;
}

void VirtualNodes::LoseGroup(size_t group) {
  for (const size_t memory : cluster_.of_group[group]) memory_[memory].lost = true;
}

void VirtualNodes::LoseCompute(size_t node, bool replaced) {
  ++generation_;
  if (!replaced) std::erase(left_, static_cast<int>(node));
  if (!left_.empty()) placement_ = cluster_.PlacementAmong(num_compute_left());
  for (Batch& batch : batches_) batch.under_way = false;
  for (Compute& compute : compute_) {
    compute.busy_until = TimePoint{};
    // Slices of steps that are given up are not entered any more.
    if (compute.ring != nullptr)
      compute.ring = *VirtualRing::Create(cluster_, *compute.model, compute.links.front());
  }
}

std::vector<std::pair<NodeId, double>> VirtualNodes::MeasureSpeeds() {
  std::vector<std::pair<NodeId, double>> speeds;
  bool any_new = false;
  double fastest = 0;
  for (Memory& memory : memory_) {
    if (memory.lost) continue;
    memory.stats.attention_messages = memory.messages;
    memory.stats.attention_us = static_cast<int64_t>(memory.attention_us);
    memory.stats.attended_tokens = memory.tokens;
    any_new |= memory.speed.Update(memory.stats);
    if (!memory.speed.value()) return {};
    // A group is as slow as its slowest memory node.
    const NodeId group = cluster_.kv_nodes[memory.model->group].id;
    if (speeds.empty() || speeds.back().first != group)
      speeds.emplace_back(group, *memory.speed.value());
    speeds.back().second = std::min(speeds.back().second, *memory.speed.value());
  }
  for (const auto& [node, speed] : speeds) fastest = std::max(fastest, speed);
  for (auto& [node, speed] : speeds) speed /= fastest;
  return any_new ? speeds : std::vector<std::pair<NodeId, double>>{};
}

}  // namespace lamina
