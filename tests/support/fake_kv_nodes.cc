#include "tests/support/fake_kv_nodes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace lamina {

TokenId NextToken(std::span<const TokenId> tokens) {
  uint64_t hash = 1469598103934665603u;
  for (const TokenId token : tokens) hash = (hash ^ static_cast<uint32_t>(token)) * 1099511628211u;
  return static_cast<TokenId>((hash >> 33) & 0xffff);
}

std::vector<TokenId> MakePrompt(SequenceId id, int64_t num_tokens) {
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < num_tokens; ++i)
    prompt.push_back(static_cast<TokenId>((id.value * 1000 + static_cast<uint64_t>(i)) & 0xfffff));
  return prompt;
}

std::vector<TokenId> GenerateAlone(std::vector<TokenId> prompt, int64_t num_new_tokens) {
  for (int64_t i = 0; i < num_new_tokens; ++i) prompt.push_back(NextToken(prompt));
  return prompt;
}

void FakeKvNodes::LoseNode(NodeId node) {
  swapped_.clear();
  capacity_tokens_.erase(node);
  suspended_.erase(node);
  std::erase_if(content_, [&](const auto& entry) { return entry.first.first == node; });
  for (const auto& [id, table] : tables_) {
    if (table.num_there.contains(node)) Leave(id);
  }
}

bool FakeKvNodes::Recall(SequenceId sequence) {
  if (holds(sequence)) Leave(sequence);
  Accepted& accepted = sequences_.at(sequence);
  if (std::exchange(accepted.sampled, false)) accepted.tokens.pop_back();
  return InFlight(sequence);
}

bool FakeKvNodes::SitsOut(SequenceId sequence) const {
  const auto table = tables_.find(sequence);
  return table != tables_.end() &&
         std::ranges::any_of(table->second.num_there,
                             [&](const auto& there) { return suspended_.contains(there.first); });
}

void FakeKvNodes::BeLate(SequenceId sequence) {
  tables_.at(sequence).late = true;
  Accepted& accepted = sequences_.at(sequence);
  ASSERT_TRUE(std::exchange(accepted.sampled, false));
  accepted.tokens.pop_back();
  leaving_.erase(sequence);  // if that was its last token
}

void FakeKvNodes::Accept(const SequenceSpec& sequence) {
  Accepted& accepted = sequences_[sequence.id];
  accepted.arrival = next_arrival_++;
  accepted.spec = sequence;
  accepted.num_prompt = sequence.prompt.size();
  accepted.tokens = sequence.prompt;
  accepted.tokens.insert(accepted.tokens.end(), sequence.generated.begin(),
                         sequence.generated.end());
  if (!sequence.generated.empty()) {
    accepted.num_prefilled =
        sequence.num_cached > 0 ? static_cast<size_t>(sequence.num_cached) : sequence.prompt.size();
  }
  accepted.max_tokens = sequence.prompt.size() + static_cast<size_t>(sequence.max_new_tokens);
}

void FakeKvNodes::Forget(SequenceId sequence) {
  sequences_.erase(sequence);
  swapped_.erase(sequence);
  untold_.erase(sequence);
  if (holds(sequence)) Leave(sequence);
}

void FakeKvNodes::Distrust(SequenceId sequence) {
  const auto table = tables_.find(sequence);
  // What it had and has lost was good.
  if (table == tables_.end() || due_.contains(sequence) || leaving_.contains(sequence)) return;
  for (const Place& place : table->second.places) {
    if (const auto content = content_.find(place); content != content_.end())
      content->second.wrong = true;
  }
}

bool FakeKvNodes::InFlight(SequenceId sequence) const {
  return std::any_of(in_flight_.begin(), in_flight_.end(),
                     [&](const auto& entry) { return entry.second.contains(sequence); });
}

std::set<SequenceId> FakeKvNodes::Completed(int batch) {
  const std::set<SequenceId> completed = std::exchange(in_flight_[batch], {});
  for (const SequenceId sequence : completed) {
    const Table& table = tables_.at(sequence);
    for (const Place& place : table.places) {
      if (const auto content = content_.find(place);
          content != content_.end() && table.attended && !table.late)
        content->second.proven = true;
    }
    if (leaving_.erase(sequence) > 0) due_.insert(sequence);
    if (const auto open = sequences_.find(sequence); open != sequences_.end())
      open->second.sampled = false;
  }
  return completed;
}

void FakeKvNodes::DropSamples(std::span<const Scheduler::Sampled> never_told) {
  for (const auto& [id, token] : never_told) {
    const auto open = sequences_.find(id);
    if (open == sequences_.end() || !std::exchange(open->second.sampled, false)) continue;
    open->second.tokens.pop_back();
    if (const auto table = tables_.find(id); table != tables_.end()) table->second.late = true;
  }
}

std::vector<FakeKvNodes::Left> FakeKvNodes::TakeLeft(
    std::span<const Scheduler::Sampled> never_told) {
  DropSamples(never_told);
  swapped_.clear();
  std::map<uint64_t, Left> by_arrival;
  for (const auto& [id, accepted] : sequences_) {
    Left& left = by_arrival[accepted.arrival];
    const auto end_of_prompt =
        accepted.tokens.begin() + static_cast<ptrdiff_t>(accepted.num_prompt);
    left.spec.id = id;
    left.spec.prompt.assign(accepted.tokens.begin(), end_of_prompt);
    left.spec.generated.assign(end_of_prompt, accepted.tokens.end());
    left.spec.max_new_tokens = static_cast<int64_t>(accepted.max_tokens - accepted.num_prompt);
    if (!left.spec.generated.empty() && accepted.num_prefilled < accepted.num_prompt)
      left.spec.num_cached = static_cast<int64_t>(accepted.num_prefilled);
    const auto table = tables_.find(id);
    if (table == tables_.end() || table->second.num_there.size() != 1) continue;
    left.node = table->second.places.front().first;
    for (const Place& place : table->second.places) {
      const auto content = content_.find(place);
      if (content == content_.end()) break;  // it was dropped
      left.slots.push_back(place.second);
      content->second.proven = true;
      content->second.wrong = false;  // nobody remembers
    }
  }
  for (const auto& [id, table] : tables_) Disown(table);
  tables_.clear();
  untold_.clear();
  sequences_.clear();
  in_flight_.clear();
  leaving_.clear();
  due_.clear();
  suspended_.clear();
  num_preemptions_ = 0;
  last_step_ = {};
  std::vector<Left> all;
  for (auto& [arrival, left] : by_arrival) all.push_back(std::move(left));
  return all;
}

void FakeKvNodes::Abandon(std::span<const Scheduler::Sampled> never_told,
                          const std::map<NodeId, std::vector<HeldTokens>>& held) {
  DropSamples(never_told);
  swapped_.clear();
  std::map<SequenceId, std::map<NodeId, int64_t>> kept;
  for (const auto& [node, tokens] : held) {
    for (const HeldTokens& one : tokens) kept[one.sequence][node] = one.num_tokens;
  }
  for (auto it = tables_.begin(); it != tables_.end();) {
    auto& [id, table] = *it;
    if (!kept.contains(id)) {
      Disown(table);
      it = tables_.erase(it);
      continue;
    }
    std::map<NodeId, int64_t> there = table.num_there;
    if (table.late && --there[table.places.back().first] == 0)
      there.erase(table.places.back().first);
    EXPECT_EQ(kept.extract(id).mapped(), there) << "sequence " << id;
    table.known = false;
    ++num_kept_;
    ++it;
  }
  EXPECT_TRUE(kept.empty()) << "sequence " << kept.begin()->first << " holds nothing";
  in_flight_.clear();
  leaving_.clear();
  due_.clear();
  suspended_.clear();
}

void FakeKvNodes::DropKv(NodeId node) {
  swapped_.clear();
  std::erase_if(content_, [&](const auto& entry) { return entry.first.first == node; });
  for (const auto& [id, table] : tables_) {
    if (table.num_there.contains(node)) Leave(id);
  }
}

void FakeKvNodes::Disown(const Table& table) {
  for (const Place& place : table.places) {
    if (const auto content = content_.find(place); content != content_.end())
      --content->second.num_owners;
  }
}

bool FakeKvNodes::done(SequenceId sequence) const {
  const auto it = sequences_.find(sequence);
  return it != sequences_.end() && it->second.tokens.size() == it->second.max_tokens;
}

std::vector<Scheduler::Sampled> FakeKvNodes::Run(const StepPlan& plan) {
  if (plan.empty()) {
    EXPECT_TRUE(due_.empty()) << "sequences were not released";
    return {};
  }
  EXPECT_EQ(plan.step.value, last_step_.value + 1);
  last_step_ = plan.step;
  SwapOut(plan);
  Release(plan);
  CheckShape(plan);
  SwapIn(plan);
  std::vector<Scheduler::Sampled> sampled;
  const auto num_started = std::ssize(first_starts_);
  for (const Work& work : plan.work) {
    EXPECT_FALSE(InFlight(work.sequence))
        << "sequence " << work.sequence << " is in two steps at a time";
    in_flight_[plan.batch].insert(work.sequence);
    Write(work);
    if (work.sample && sequences_.contains(work.sequence))
      sampled.push_back({work.sequence, Sample(work)});
  }
  // Decode rows stand first.
  if (options_.prefix_caching)
    std::ranges::sort(first_starts_.begin() + num_started, first_starts_.end());
  for (const auto& [id, token] : sampled) {
    sequences_.at(id).tokens.push_back(token);
    sequences_.at(id).sampled = true;
    if (done(id)) Leave(id);
  }
  return sampled;
}

void FakeKvNodes::SwapOut(const StepPlan& plan) {
  int64_t num_out = 0;
  for (const auto& [id, num_tokens] : plan.swapped_out) {
    ASSERT_TRUE(tables_.contains(id)) << "sequence " << id << " holds nothing to copy out";
    EXPECT_NE(std::ranges::find(plan.released, id), plan.released.end());
    const Table& table = tables_.at(id);
    EXPECT_EQ(num_tokens, std::ssize(table.places) - (table.late ? 1 : 0));
    std::vector<Content>& kept = swapped_[id];
    kept.clear();
    for (int64_t i = 0; i < num_tokens; ++i)
      kept.push_back(content_.at(table.places[static_cast<size_t>(i)]));
  }
  for (const auto& [id, kept] : swapped_) num_out += sequences_.contains(id) ? std::ssize(kept) : 0;
  EXPECT_LE(num_out, options_.swap_tokens);
}

void FakeKvNodes::SwapIn(const StepPlan& plan) {
  for (const auto& [id, num_tokens] : plan.swapped_in) {
    const auto work = std::ranges::find(plan.work, id, &Work::sequence);
    ASSERT_NE(work, plan.work.end()) << "sequence " << id << " comes back and gets no row";
    ASSERT_EQ(work->route.size(), 1u);
    const KvPart& part = work->route.front();
    const auto kept = swapped_.extract(id);
    ASSERT_TRUE(!kept.empty()) << "sequence " << id << " has nothing outside";
    ASSERT_EQ(kept.mapped().size(), part.shared.size());
    EXPECT_EQ(num_tokens, std::ssize(part.shared));
    for (size_t i = 0; i < part.shared.size(); ++i) {
      Content& content = content_[{part.node, part.shared[i]}];
      EXPECT_EQ(content.num_owners, 0) << "slot " << part.shared[i] << " is in use";
      content = kept.mapped()[i];
      content.num_owners = 0;
      content.proven = true;
      content.wrong = false;
    }
    ++num_swapped_;
  }
}

void FakeKvNodes::Release(const StepPlan& plan) {
  std::map<SequenceId, Table> victims;
  for (const SequenceId id : plan.released) {
    const auto it = tables_.find(id);
    if (it == tables_.end()) {
      ADD_FAILURE() << "released sequence " << id << " holds nothing";
      continue;
    }
    EXPECT_FALSE(InFlight(id)) << "sequence " << id << " is released in flight";
    Disown(it->second);
    if (due_.erase(id) == 0) victims.insert(*it);
    tables_.erase(it);
  }
  EXPECT_TRUE(due_.empty()) << "sequence " << *due_.begin() << " is over and was not released";
  num_preemptions_ += static_cast<int64_t>(victims.size());
  CheckVictims(victims, plan);
}

std::pair<int64_t, uint64_t> FakeKvNodes::OrderOf(SequenceId sequence) const {
  const Accepted& accepted = sequences_.at(sequence);
  // What a step in flight samples is not the scheduler's yet.
  const int in_flight = accepted.sampled && InFlight(sequence) ? 1 : 0;
  const int64_t num_generated =
      std::ssize(accepted.tokens) - std::ssize(accepted.spec.prompt) - in_flight;
  return {rank_ ? rank_(accepted.spec, num_generated) : 0, accepted.arrival};
}

// The last in order first, never for nothing, and not started again at once.
void FakeKvNodes::CheckVictims(const std::map<SequenceId, Table>& victims,
                               const StepPlan& plan) const {
  for (const auto& [id, victim] : victims) {
    bool alone = !MayShareWithUntold(id, victim);
    for (const auto& [other_id, other] : tables_) {
      if (!spreads_ && !other.shares_node(victim)) continue;
      alone = false;
      EXPECT_LT(OrderOf(other_id), OrderOf(id))
          << "sequence " << id << " was preempted, " << other_id << " behind it was not";
    }
    for (const auto& [other_id, other] : victims) {
      if ((spreads_ || other.shares_node(victim)) && OrderOf(other_id) < OrderOf(id)) alone = false;
    }
    if (alone) {
      int64_t capacity = 0;
      for (const auto& [node, tokens] : capacity_tokens_)
        capacity += spreads_ || victim.num_there.contains(node) ? tokens : 0;
      EXPECT_GT(static_cast<int64_t>(tokens(id).size()), capacity)
          << "the first in order was preempted though it fits";
    }
    for (const Work& work : plan.work)
      EXPECT_NE(work.sequence, id) << "preempted and started in one plan";
  }
}

bool FakeKvNodes::MayShareWithUntold(SequenceId sequence, const Table& table) const {
  return std::ranges::any_of(untold_, [&](const auto& one) {
    return OrderOf(one.first) < OrderOf(sequence) &&
           (spreads_ || table.num_there.contains(one.second));
  });
}

void FakeKvNodes::CheckShape(const StepPlan& plan) const {
  int64_t num_rows = 0, num_decode_rows = 0;
  size_t num_decode = 0, num_partial = 0, num_starts = 0;
  bool in_prefill = false;
  std::set<SequenceId> seen;
  for (const Work& work : plan.work) {
    num_rows += static_cast<int64_t>(work.tokens.size());
    EXPECT_TRUE(seen.insert(work.sequence).second) << "two works for sequence " << work.sequence;
    EXPECT_TRUE(sequences_.contains(work.sequence))
        << "work for sequence " << work.sequence << ", which is over";
    EXPECT_FALSE(in_prefill && !work.prefill) << "decode after prefill";
    in_prefill = work.prefill;
    const auto table = tables_.find(work.sequence);
    const bool decodes = table != tables_.end() && table->second.decoding;
    num_decode += decodes ? 1 : 0;
    num_decode_rows += work.prefill ? 0 : static_cast<int64_t>(work.tokens.size());
    num_partial += work.sample ? 0 : 1;
    num_starts += table == tables_.end() ? 1 : 0;
    EXPECT_EQ(work.first, table == tables_.end() || !table->second.known);
    EXPECT_TRUE(!decodes || (!work.prefill && work.tokens.size() == 1 && work.sample));
  }
  EXPECT_LE(num_rows, options_.max_num_batched_tokens);
  EXPECT_LE(num_decode_rows, options_.max_num_seqs);
  if (!options_.replays_as_computed) {
    EXPECT_LE(num_partial, options_.prefix_caching ? 2u : 1u);
  }
  EXPECT_LE(tables_.size() + num_starts - leaving_.size(),
            static_cast<size_t>(options_.max_num_seqs));
  // Where sequences spread, they may also have to wait for slots of a suspended node.
  if (options_.num_batches > 1 || (spreads_ && !suspended_.empty())) return;
  size_t num_decoding = 0;
  for (const auto& [id, table] : tables_) {
    if (SitsOut(id)) {
      EXPECT_FALSE(seen.contains(id)) << "sequence " << id << " has tokens on a suspended node";
      continue;
    }
    num_decoding += table.decoding ? 1 : 0;
    if (!table.decoding && table.places.size() >= NumToPrefill(id, table))
      continue;  // when there are rows for it
    // Where rows are replayed as they were computed, they may leave one that is partly prefilled
    // none.
    if (options_.replays_as_computed && !table.decoding && !seen.contains(id)) {
      EXPECT_EQ(num_rows, options_.max_num_batched_tokens);
      EXPECT_EQ(num_starts, 0u);
      continue;
    }
    // A sequence that runs is never skipped, and one that is partly prefilled goes on before others
    // start.
    EXPECT_TRUE(seen.contains(id)) << "sequence " << id << " has slots and got no work";
    if (table.decoding) continue;
    const auto prefill = std::ranges::find_if(plan.work, &Work::prefill);
    EXPECT_TRUE(prefill != plan.work.end() && prefill->sequence == id);
  }
  EXPECT_EQ(num_decode, num_decoding);
}

bool FakeKvNodes::Table::shares_node(const Table& other) const {
  return std::any_of(num_there.begin(), num_there.end(),
                     [&](const auto& entry) { return other.num_there.contains(entry.first); });
}

// Where the work's tokens go, after checking the route against what the nodes hold.
std::vector<FakeKvNodes::Place> FakeKvNodes::PlacesOf(const Work& work, Table& table) {
  std::vector<Place> places;
  std::set<NodeId> named;
  for (const KvPart& part : work.route) {
    EXPECT_TRUE(capacity_tokens_.contains(part.node)) << "node " << part.node << " does not exist";
    EXPECT_FALSE(suspended_.contains(part.node)) << "node " << part.node << " is suspended";
    EXPECT_TRUE(named.insert(part.node).second)
        << "node " << part.node << " stands twice in a route";
    const auto there = table.num_there.find(part.node);
    EXPECT_EQ(part.num_stored, there == table.num_there.end() ? 0 : there->second)
        << "sequence " << work.sequence << " on " << part.node;
    for (const TokenSlot slot : part.slots) {
      EXPECT_LT(slot, capacity_tokens_[part.node]);
      places.emplace_back(part.node, slot);
    }
  }
  if (!work.prefill) {
    for (const auto& [node, count] : table.num_there)
      EXPECT_TRUE(named.contains(node)) << "tokens on node " << node << " are left out";
  }
  for (const Place& place : places) ++table.num_there[place.first];
  EXPECT_TRUE(spreads_ || table.num_there.size() == 1)
      << "sequence " << work.sequence << " moved without a release";
  if (table.num_there.size() > 1) spread_.insert(work.sequence);
  return places;
}

int64_t FakeKvNodes::num_held_tokens() const {
  return std::ranges::count_if(content_,
                               [](const auto& entry) { return entry.second.num_owners > 0; });
}

void FakeKvNodes::TakeShared(const Work& work, Table& table) {
  for (const KvPart& part : work.route) {
    if (part.shared.empty()) continue;
    // What goes on with tokens that were left may have its next one elsewhere.
    EXPECT_TRUE(work.route.size() == 1 || spreads_);
    EXPECT_EQ(static_cast<int64_t>(part.shared.size()), work.first_position);
    table.shares = true;
    ++num_shared_;
    const std::span<const TokenId> tokens = sequences_.at(work.sequence).tokens;
    for (size_t i = 0; i < part.shared.size(); ++i) {
      const Place place{part.node, part.shared[i]};
      ASSERT_TRUE(content_.contains(place)) << "nothing was ever written there";
      Content& content = content_[place];
      EXPECT_TRUE(content.proven) << "it may not have come yet";
      // What was left for several is theirs, as if they had shared it before.
      EXPECT_TRUE(!content.wrong || untold_.contains(work.sequence)) << "of a sequence that failed";
      EXPECT_EQ(content.behind, NextToken(tokens.first(i + 1))) << "of another text";
      ++content.num_owners;
      table.places.push_back(place);
      ++table.num_there[part.node];
    }
  }
}

// The row of a late token comes again, with the slot that it has.
void FakeKvNodes::CutLate(const Work& work, Table& table) {
  EXPECT_EQ(work.again, table.late) << "sequence " << work.sequence;
  if (!std::exchange(table.late, false)) return;
  ++num_again_;
  const Place place = table.places.back();
  table.places.pop_back();
  if (--table.num_there[place.first] == 0) table.num_there.erase(place.first);
  content_.erase(place);
  const auto part = std::ranges::find(work.route, place.first, &KvPart::node);
  ASSERT_NE(part, work.route.end());
  EXPECT_EQ(part->slots, std::vector<TokenSlot>{place.second});
}

void FakeKvNodes::Write(const Work& work) {
  if (started_.insert(work.sequence).second) first_starts_.push_back(work.sequence);
  const bool starts = !tables_.contains(work.sequence);
  const auto accepted = sequences_.find(work.sequence);
  if (accepted == sequences_.end()) return;  // CheckShape said so
  Table& table = tables_[work.sequence];
  table.known = true;
  if (starts) TakeShared(work, table);
  untold_.erase(work.sequence);
  if (accepted->second.num_prefilled == 0) {
    accepted->second.num_prefilled =
        table.shares ? table.places.size() : accepted->second.tokens.size();
  }
  CheckPhase(work, table);
  CutLate(work, table);
  const std::vector<Place> places = PlacesOf(work, table);
  ASSERT_EQ(work.tokens.size(), places.size());
  EXPECT_EQ(work.first_position, static_cast<int64_t>(table.places.size()))
      << "a gap or an overlap in sequence " << work.sequence;
  const std::vector<TokenId>& expected = accepted->second.tokens;
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t position = static_cast<size_t>(work.first_position) + i;
    EXPECT_TRUE(position < expected.size() && expected[position] == work.tokens[i])
        << "a wrong token in sequence " << work.sequence;
    Content& content = content_[places[i]];
    EXPECT_EQ(content.num_owners, 0) << "slot " << places[i].second << " is in use";
    content = {work.tokens[i], NextToken(std::span(expected).first(position + 1)), 1, false, false};
    table.places.push_back(places[i]);
  }
  table.attended = !work.prefill;
  EXPECT_EQ(work.sample, table.places.size() == expected.size())
      << "a prefill samples after its last token, and only then";
  table.decoding = work.sample;
}

size_t FakeKvNodes::NumToPrefill(SequenceId sequence, const Table& table) const {
  if (table.shares) return 0;
  const Accepted& accepted = sequences_.at(sequence);
  return options_.replays_as_computed ? accepted.num_prefilled : accepted.tokens.size();
}

void FakeKvNodes::CheckPhase(const Work& work, const Table& table) const {
  EXPECT_FALSE(work.tokens.empty());
  const size_t to_prefill = NumToPrefill(work.sequence, table),
               end = static_cast<size_t>(work.first_position) + work.tokens.size();
  EXPECT_EQ(work.prefill, !table.decoding && table.places.size() < to_prefill);
  EXPECT_EQ(work.ends_prefill, work.prefill && end == to_prefill);
  EXPECT_TRUE(!work.prefill || end <= to_prefill) << "what it once decoded";
}

TokenId FakeKvNodes::Sample(const Work& work) {
  const Table& table = tables_.at(work.sequence);
  std::vector<TokenId> read;
  for (const Place& place : table.places) read.push_back(content_.at(place).token);
  return NextToken(read);
}

}  // namespace lamina
