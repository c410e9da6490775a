#include "grammar/automaton.h"

#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/check.h"

namespace lamina {
namespace {

uint64_t Mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
  return hash ^ hash >> 29;
}

// Plain characters by the bytes that they begin with, and how many continuation bytes follow, the
// first of them in [low, high] (Unicode standard, table 3-7).
struct Lead {
  uint8_t first, last, low, high;
  int rest;
};
constexpr Lead kLeads[] = {{0xC2, 0xDF, 0x80, 0xBF, 1}, {0xE0, 0xE0, 0xA0, 0xBF, 2},
                           {0xE1, 0xEC, 0x80, 0xBF, 2}, {0xED, 0xED, 0x80, 0x9F, 2},
                           {0xEE, 0xEF, 0x80, 0xBF, 2}, {0xF0, 0xF0, 0x90, 0xBF, 3},
                           {0xF1, 0xF3, 0x80, 0xBF, 3}, {0xF4, 0xF4, 0x80, 0x8F, 3}};

// Bytes that a plain character begins with.
const ByteSet& PlainBytes() {
  static const ByteSet bytes = [] {
    ByteSet set;
    set.Add(0x20, '"' - 1);
    set.Add('"' + 1, '\\' - 1);
    set.Add('\\' + 1, 0x7E);
    for (const Lead& lead : kLeads) set.Add(lead.first, lead.last);
    return set;
  }();
  return bytes;
}

// Where a state takes so few bytes, they are looked for among the children of a node, and else the
// children are looked through.
constexpr int kFewBytes = 4;

// A set that is nearly always small.
class NumberSet {
 public:
  explicit NumberSet(std::span<const uint64_t> numbers) {
    for (const uint64_t number : numbers) Insert(number);
  }
  // Whether it was not there.
  bool Insert(uint64_t number) {
    if (!many_.empty()) return many_.insert(number).second;
    const auto end = few_.begin() + static_cast<std::ptrdiff_t>(num_few_);
    if (std::find(few_.begin(), end, number) != end) return false;
    if (num_few_ == few_.size()) {
      many_.insert(few_.begin(), end);
      many_.insert(number);
    } else {
      few_[num_few_++] = number;
    }
    return true;
  }
  size_t size() const { return many_.empty() ? num_few_ : many_.size(); }

 private:
  std::array<uint64_t, 24> few_;
  size_t num_few_ = 0;
  std::unordered_set<uint64_t> many_;  // all of them once there are more
};

Status TooAmbiguous() {
  return InvalidArgument(
      "the constraint is too ambiguous: to find the tokens that may follow takes too long or too "
      "much memory");
}

}  // namespace

Automaton::Automaton(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)) {
  FindByteClasses();
  FindTailStates();
  Forget();
  generation_ = 0;
}

// Bytes that no edge tells apart are one class.
void Automaton::FindByteClasses() {
  std::array<bool, 257> begins{};
  begins[0] = true;
  for (const Grammar::Edge& edge : grammar_.edges) {
    if (edge.kind != Grammar::EdgeKind::kBytes) continue;
    begins[edge.low] = true;
    begins[size_t{edge.high} + 1] = true;
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) class_bytes_.push_back(static_cast<uint8_t>(byte));
    class_of_[byte] = static_cast<uint8_t>(class_bytes_.size() - 1);
  }
}

// Calls whose return leads nowhere but to the end of the caller push nothing, so that what only
// repeats by calling itself at its end does not go deeper and deeper.
void Automaton::FindTailStates() {
  const size_t num_states = grammar_.states.size();
  // Not tail: states with other edges, and all from which such a state is reached.
  std::vector<std::vector<int32_t>> into(num_states);
  std::vector<int32_t> unvisited;
  tail_.assign(num_states, true);
  for (size_t from = 0; from < num_states; ++from) {
    const Grammar::State& state = grammar_.states[from];
    bool only_empty = true;
    for (int32_t i = 0; i < state.num_edges; ++i) {
      const Grammar::Edge& edge = grammar_.edges[static_cast<size_t>(state.first_edge + i)];
      if (edge.kind == Grammar::EdgeKind::kEmpty)
        into[static_cast<size_t>(edge.target)].push_back(static_cast<int32_t>(from));
      else
        only_empty = false;
    }
    // A state without any way on is no end, unless it accepts.
    if (!only_empty || (state.num_edges == 0 && !state.accepts)) {
      tail_[from] = false;
      unvisited.push_back(static_cast<int32_t>(from));
    }
  }
  while (!unvisited.empty()) {
    const auto state = static_cast<size_t>(unvisited.back());
    unvisited.pop_back();
    for (const int32_t from : into[state]) {
      if (!tail_[static_cast<size_t>(from)]) continue;
      tail_[static_cast<size_t>(from)] = false;
      unvisited.push_back(from);
    }
  }
}

void Automaton::Forget() {
  frames_.assign(1, {});
  frames_by_content_.Clear();
  states_.clear();
  threads_.clear();
  states_by_threads_.Clear();
  steps_.clear();
  last_begun_.clear();
  held_bytes_ = 0;
  ++generation_;
  work_ = kMaxWork;
  start_ = Close(std::array{static_cast<Thread>(grammar_.starts[0]) << 32});
}

int32_t Automaton::Push(int32_t back, int32_t parent) {
  const int32_t depth = frames_[static_cast<size_t>(parent)].depth + 1;
  if (depth > kMaxCalls) return -1;
  const uint64_t hash = Mixed(static_cast<uint64_t>(back), static_cast<uint64_t>(parent));
  const int32_t known = frames_by_content_.Find(hash, [&](int32_t frame) {
    const Frame& same = frames_[static_cast<size_t>(frame)];
    return same.back == back && same.parent == parent;
  });
  if (known != NumberIndex::kNone) return known;
  const auto added = static_cast<int32_t>(frames_.size());
  frames_.push_back({back, parent, depth});
  frames_by_content_.Insert(hash, added);
  held_bytes_ += sizeof(Frame) + 64;
  return added;
}

// Follows edges that need no byte. A thread of the root rule's end stands in no state.
Automaton::State Automaton::Close(std::span<const Thread> begun) {
  NumberSet seen(begun);
  unvisited_.assign(begun.begin(), begun.end());
  closed_.clear();
  bool accepting = false;
  const auto reach = [&](int32_t state, int32_t frame) {
    const Thread thread = static_cast<Thread>(state) << 32 | static_cast<uint32_t>(frame);
    if (seen.Insert(thread)) unvisited_.push_back(thread);
  };
  while (!unvisited_.empty()) {
    const Thread thread = unvisited_.back();
    unvisited_.pop_back();
    const auto frame = static_cast<int32_t>(thread & UINT32_MAX);
    const Grammar::State& state = grammar_.states[static_cast<size_t>(thread >> 32)];
    work_ -= 1 + state.num_edges;
    if (is_exhausted()) return kDead;
    bool takes_bytes = false;
    for (int32_t i = 0; i < state.num_edges; ++i) {
      const Grammar::Edge& edge = grammar_.edges[static_cast<size_t>(state.first_edge + i)];
      if (edge.kind == Grammar::EdgeKind::kBytes) {
        takes_bytes = true;
      } else if (edge.kind == Grammar::EdgeKind::kEmpty) {
        reach(edge.target, frame);
      } else {
        const int32_t called =
            tail_[static_cast<size_t>(edge.target)] ? frame : Push(edge.target, frame);
        if (called >= 0) reach(grammar_.starts[static_cast<size_t>(edge.rule)], called);
      }
    }
    if (takes_bytes) closed_.push_back(thread);
    if (state.accepts && frame == 0) accepting = true;
    if (state.accepts && frame != 0) {
      const Frame& call = frames_[static_cast<size_t>(frame)];
      reach(call.back, call.parent);
    }
    if (seen.size() > 4 * kMaxThreads) return kDead;
  }
  if (closed_.empty() && !accepting) return kDead;
  if (closed_.size() > kMaxThreads) return kDead;
  std::ranges::sort(closed_);
  return Intern(closed_, accepting);
}

Automaton::State Automaton::Intern(std::span<const Thread> threads, bool accepting) {
  uint64_t hash = accepting ? 1 : 0;
  for (const Thread thread : threads) hash = Mixed(hash, thread);
  const State known = states_by_threads_.Find(hash, [&](State state) {
    return states_[static_cast<size_t>(state)].accepts == accepting &&
           std::ranges::equal(threads_of(state), threads);
  });
  if (known != NumberIndex::kNone) return known;
  const auto added = static_cast<State>(states_.size());
  states_by_threads_.Insert(hash, added);
  held_bytes_ += threads.size_bytes() + class_bytes_.size() * sizeof(State) + sizeof(Known) + 64;
  Known& state = states_.emplace_back();
  state.first_thread = threads_.size();
  state.num_threads = threads.size();
  state.accepts = accepting;
  for (const Thread thread : threads) {
    const Grammar::State& at = grammar_.states[static_cast<size_t>(thread >> 32)];
    for (int32_t i = 0; i < at.num_edges; ++i) {
      const Grammar::Edge& edge = grammar_.edges[static_cast<size_t>(at.first_edge + i)];
      if (edge.kind == Grammar::EdgeKind::kBytes) state.takes.Add(edge.low, edge.high);
    }
  }
  threads_.insert(threads_.end(), threads.begin(), threads.end());
  steps_.resize(states_.size() * class_bytes_.size(), kUnknown);
  return added;
}

// Steps with all bytes at once, so that a state of many threads, such as a choice of many words, is
// looked through once. False, and nothing was done, if its edges are for many bytes each.
bool Automaton::FindAllSteps(State from) {
  const std::span<const Thread> threads = threads_of(from);
  std::vector<std::pair<uint8_t, Thread>> begun;  // class of bytes, thread behind it
  for (const Thread thread : threads) {
    const Grammar::State& state = grammar_.states[static_cast<size_t>(thread >> 32)];
    for (int32_t i = 0; i < state.num_edges; ++i) {
      const Grammar::Edge& edge = grammar_.edges[static_cast<size_t>(state.first_edge + i)];
      if (edge.kind != Grammar::EdgeKind::kBytes) continue;
      for (int at = class_of_[edge.low]; at <= class_of_[edge.high]; ++at) {
        begun.emplace_back(static_cast<uint8_t>(at),
                           static_cast<Thread>(edge.target) << 32 | (thread & UINT32_MAX));
      }
      if (begun.size() > 4 * threads.size()) return false;
    }
  }
  work_ -= std::ssize(begun);
  std::ranges::sort(begun);
  begun.erase(std::unique(begun.begin(), begun.end()), begun.end());
  auto next = begun.begin();
  for (size_t at = 0; at < class_bytes_.size() && !is_exhausted(); ++at) {
    begun_.clear();
    for (; next != begun.end() && next->first == at; ++next) begun_.push_back(next->second);
    const State to = begun_.empty() ? kDead : Close(begun_);
    if (!is_exhausted()) steps_[PlaceOf(from, class_bytes_[at])] = to;
  }
  return true;
}

Automaton::State Automaton::FindStep(State from, uint8_t byte) {
  constexpr size_t kManyThreads = 16;
  const size_t place = PlaceOf(from, byte);
  if (is_exhausted()) return kDead;
  if (!states_[static_cast<size_t>(from)].takes.Has(byte)) return steps_[place] = kDead;
  if (states_[static_cast<size_t>(from)].num_threads > kManyThreads && FindAllSteps(from))
    return steps_[place] == kUnknown ? kDead : steps_[place];
  begun_.clear();
  for (const Thread thread : threads_of(from)) {
    const Grammar::State& state = grammar_.states[static_cast<size_t>(thread >> 32)];
    work_ -= state.num_edges;
    for (int32_t i = 0; i < state.num_edges; ++i) {
      const Grammar::Edge& edge = grammar_.edges[static_cast<size_t>(state.first_edge + i)];
      if (edge.kind == Grammar::EdgeKind::kBytes && edge.low <= byte && byte <= edge.high)
        begun_.push_back(static_cast<Thread>(edge.target) << 32 | (thread & UINT32_MAX));
    }
  }
  // Two edges may lead to the same state.
  std::sort(begun_.begin(), begun_.end());
  begun_.erase(std::unique(begun_.begin(), begun_.end()), begun_.end());
  State to = kDead;
  if (!begun_.empty() && begun_ == last_begun_) {
    to = last_closed_;
  } else if (!begun_.empty()) {
    last_begun_ = begun_;
    to = last_closed_ = Close(begun_);
    if (is_exhausted()) last_begun_.clear();
  }
  if (!is_exhausted()) steps_[place] = to;
  return to;
}

Result<Automaton::State> Automaton::Advance(State state, std::span<const TokenId> tokens) {
  work_ = kMaxWork + kWorkPerToken * std::ssize(tokens);
  for (const TokenId token : tokens) {
    const bool is_text =
        token >= 0 && token < vocabulary_->size() && !vocabulary_->bytes(token).empty();
    if (!is_text) return kDead;
    for (const char byte : vocabulary_->bytes(token)) {
      state = Step(state, static_cast<uint8_t>(byte));
      if (is_exhausted()) return TooAmbiguous();
      if (state == kDead) return kDead;
    }
  }
  return state;
}

Result<Automaton::State> Automaton::AdvanceBytes(State state, std::string_view bytes) {
  work_ = kMaxWork + kWorkPerToken * std::ssize(bytes);
  for (const char byte : bytes) {
    state = Step(state, static_cast<uint8_t>(byte));
    if (is_exhausted()) return TooAmbiguous();
    if (state == kDead) break;
  }
  return state;
}

// The one state that all plain characters lead to; else kNothingPlain if none may follow, or kDead.
Automaton::State Automaton::PlainStep(State from) {
  if (states_[static_cast<size_t>(from)].plain != kUnknown)
    return states_[static_cast<size_t>(from)].plain;
  const State to = FindPlainStep(from);
  if (is_exhausted()) return kDead;
  return states_[static_cast<size_t>(from)].plain = to;
}

Automaton::State Automaton::FindPlainStep(State from) {
  if (!states_[static_cast<size_t>(from)].takes.Intersects(PlainBytes())) return kNothingPlain;
  const State to = Step(from, ' ');
  if (to == kDead) return kDead;
  // Calls `visit` with the state behind each class of the bytes in [low, high] that plain
  // characters have there, until it says false.
  const auto visit_steps = [&](State state, uint8_t low, uint8_t high, const auto& visit) {
    for (size_t byte = low; byte <= high;) {
      if (byte == '"' || byte == '\\') {
        ++byte;
        continue;
      }
      if (!visit(Step(state, static_cast<uint8_t>(byte)))) return false;
      const size_t next_class = class_of_[byte] + size_t{1};
      byte = next_class < class_bytes_.size() ? class_bytes_[next_class] : 256;
    }
    return true;
  };
  const auto leads_there = [&](State reached) { return reached == to; };
  if (!visit_steps(from, 0x20, 0x7E, leads_there)) return kDead;
  for (const Lead& lead : kLeads) {
    std::vector<State> states = {from}, next;
    const auto is_alive = [&](State reached) {
      if (reached == kDead) return false;
      if (std::ranges::find(next, reached) == next.end()) next.push_back(reached);
      return true;
    };
    for (int left = lead.rest; left >= 0; --left) {
      const bool is_lead = left == lead.rest, is_second = left + 1 == lead.rest;
      const uint8_t low = is_lead ? lead.first : is_second ? lead.low : 0x80;
      const uint8_t high = is_lead ? lead.last : is_second ? lead.high : 0xBF;
      next.clear();
      for (const State state : states) {
        if (left == 0 ? !visit_steps(state, low, high, leads_there)
                      : !visit_steps(state, low, high, is_alive))
          return kDead;
      }
      std::swap(states, next);
    }
  }
  return to;
}

Automaton::PlainRun Automaton::PlainRunOf(State from) {
  if (const PlainRun known = states_[static_cast<size_t>(from)].run; known.length != kUnknown)
    return known;
  PlainRun run{0, false};
  for (State state = from; run.length < Vocabulary::kMaxPlainCharacters; ++run.length) {
    const State next = PlainStep(state);
    run.ends = next == kNothingPlain;
    if (next == state) run.length = kEndless;
    if (next < 0 || next == state) break;
    state = next;
  }
  if (!is_exhausted()) states_[static_cast<size_t>(from)].run = run;
  return run;
}

// Walks the trie with a state for each node on the way.
std::vector<Automaton::Range> Automaton::AllowedRanges(State from, const TokenTrie& trie) {
  std::vector<Range> allowed;
  const auto allow = [&](int32_t first, int32_t last) {
    if (first == last) return;
    if (!allowed.empty() && allowed.back().last == first) {
      allowed.back().last = last;
    } else {
      allowed.push_back({first, last});
    }
  };
  // Children of a node, from `next` on, which are still to be held against the node's state.
  struct Visit {
    int32_t next, end;
    State state;
  };
  std::vector<Visit> visits;
  const auto visit_children = [&](const TokenTrie::Node& node, State state) {
    const int32_t end = node.first_child + node.num_children;
    const ByteSet& takes = states_[static_cast<size_t>(state)].takes;
    if (node.num_children <= 2 * kFewBytes || takes.size() > kFewBytes) {
      visits.push_back({node.first_child, end, state});
      return;
    }
    takes.ForEachDescending([&](uint8_t byte) {
      const auto first = trie.bytes.begin() + node.first_child, last = trie.bytes.begin() + end;
      const auto found = std::lower_bound(first, last, byte);
      if (found == last || *found != byte) return;
      const auto child = static_cast<int32_t>(found - trie.bytes.begin());
      visits.push_back({child, child + 1, state});
    });
  };
  visit_children(trie.nodes.front(), from);
  while (!visits.empty() && !is_exhausted()) {
    Visit& visit = visits.back();
    const ByteSet& takes = states_[static_cast<size_t>(visit.state)].takes;
    while (visit.next < visit.end && !takes.Has(trie.bytes[static_cast<size_t>(visit.next)]))
      ++visit.next;
    if (visit.next == visit.end) {
      visits.pop_back();
      continue;
    }
    const auto child = static_cast<size_t>(visit.next++);
    const TokenTrie::Node& node = trie.nodes[child];
    const State reached = Step(visit.state, trie.bytes[child]);
    if (reached == kDead) continue;
    // All that the tokens below add may follow, whatever it is, so none of them is looked at.
    if (node.num_children > 0 && node.plain != TokenTrie::kNotPlain &&
        node.plain <= PlainRunOf(reached).length) {
      allow(node.first_token, node.last_token);
      continue;
    }
    allow(node.first_token, node.first_token + node.num_tokens);
    if (node.num_children > 0) visit_children(node, reached);
  }
  return allowed;
}

Result<const TokenMask*> Automaton::MaskOf(State state) {
  if (const auto& known = states_[static_cast<size_t>(state)].mask) return known.get();
  work_ = kMaxWork;
  // In a string, the tokens of plain characters are known by how many of these may follow.
  const PlainRun run = PlainRunOf(state);
  const int length = std::min(run.length, Vocabulary::kMaxPlainCharacters);
  const bool plain_is_known = length > 0 && (run.ends || length == Vocabulary::kMaxPlainCharacters);
  const TokenTrie& trie = plain_is_known ? vocabulary_->rest() : vocabulary_->all();
  const std::vector<Range> ranges = AllowedRanges(state, trie);
  if (is_exhausted()) return TooAmbiguous();
  auto mask = std::make_unique<TokenMask>(vocabulary_->plain(plain_is_known ? length : 0));
  for (const Range& range : ranges) {
    for (int32_t i = range.first; i < range.last; ++i)
      AddToken(trie.tokens[static_cast<size_t>(i)], *mask);
  }
  held_bytes_ += mask->bits.size();
  Known& known = states_[static_cast<size_t>(state)];
  known.mask = std::move(mask);
  return known.mask.get();
}

}  // namespace lamina
