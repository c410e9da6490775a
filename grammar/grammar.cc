#include "grammar/grammar.h"

#include <cstdint>
#include <span>
#include <unordered_set>
#include <utility>

namespace lamina {
namespace {

constexpr std::string_view kMagic = "lgr1";

// Seven bits a byte, the lowest first.
void Append(uint32_t number, std::string& bytes) {
  for (; number >= 128; number >>= 7) bytes += static_cast<char>(number | 128U);
  bytes += static_cast<char>(number);
}

bool Take(std::string_view& bytes, uint32_t& number) {
  number = 0;
  for (int shift = 0; shift < 32 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    number |= static_cast<uint32_t>(byte & 127U) << shift;
    if (byte < 128) return true;
  }
  return false;
}

bool TakeByte(std::string_view& bytes, uint8_t& byte) {
  if (bytes.empty()) return false;
  byte = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  return true;
}

// Edges mostly lead to a state nearby: the distance, with its sign in the lowest bit.
uint32_t Distance(int64_t from, int32_t to) {
  const int64_t ahead = to - from;
  return static_cast<uint32_t>(ahead < 0 ? -2 * ahead - 1 : 2 * ahead);
}
int64_t Ahead(uint32_t distance) {
  return (distance & 1U) != 0 ? -static_cast<int64_t>(distance / 2) - 1
                              : static_cast<int64_t>(distance / 2);
}

// Which rules each rule may call before its first byte. Rules that may be empty let what stands
// behind them come first.
class FirstCalls {
 public:
  explicit FirstCalls(const Grammar& grammar)
      : grammar_(grammar),
        nullable_(grammar.starts.size(), false),
        waiting_(grammar.starts.size()),
        calls_(grammar.starts.size()) {
    for (int32_t rule = 0; rule < std::ssize(grammar.starts); ++rule)
      Reach(rule, grammar.starts[static_cast<size_t>(rule)]);
    while (!unvisited_.empty() && !too_many()) {
      const auto [rule, state] = unvisited_.back();
      unvisited_.pop_back();
      Visit(rule, state);
    }
  }

  // Where every state belongs to one rule there are never so many.
  bool too_many() const { return std::ssize(seen_) > kMaxGrammarEdges; }

  const std::vector<int32_t>& of(int32_t rule) const { return calls_[static_cast<size_t>(rule)]; }

 private:
  void Reach(int32_t rule, int32_t state) {
    const auto key = static_cast<uint64_t>(rule) << 32 | static_cast<uint32_t>(state);
    if (seen_.insert(key).second) unvisited_.emplace_back(rule, state);
  }

  void Visit(int32_t rule, int32_t at) {
    const Grammar::State& state = grammar_.states[static_cast<size_t>(at)];
    if (state.accepts && !nullable_[static_cast<size_t>(rule)]) {
      nullable_[static_cast<size_t>(rule)] = true;
      for (const auto& [caller, target] : std::exchange(waiting_[static_cast<size_t>(rule)], {}))
        Reach(caller, target);
    }
    for (int32_t i = 0; i < state.num_edges; ++i) {
      const Grammar::Edge& edge = grammar_.edges[static_cast<size_t>(state.first_edge + i)];
      if (edge.kind == Grammar::EdgeKind::kEmpty) Reach(rule, edge.target);
      if (edge.kind != Grammar::EdgeKind::kCall) continue;
      calls_[static_cast<size_t>(rule)].push_back(edge.rule);
      if (nullable_[static_cast<size_t>(edge.rule)]) {
        Reach(rule, edge.target);
      } else {
        waiting_[static_cast<size_t>(edge.rule)].emplace_back(rule, edge.target);
      }
    }
  }

  const Grammar& grammar_;
  std::vector<bool> nullable_;
  std::vector<std::vector<std::pair<int32_t, int32_t>>> waiting_;  // by rule: caller and its state
  std::vector<std::vector<int32_t>> calls_;                        // by rule
  std::unordered_set<uint64_t> seen_;                              // a rule and a state
  std::vector<std::pair<int32_t, int32_t>> unvisited_;
};

Status CheckRanges(const Grammar& grammar) {
  const auto num_states = std::ssize(grammar.states), num_edges = std::ssize(grammar.edges);
  if (grammar.starts.empty() || num_states > kMaxGrammarStates || num_edges > kMaxGrammarEdges ||
      std::ssize(grammar.starts) > num_states)
    return InvalidArgument("the compiled constraint has no rule or is too large");
  for (const int32_t start : grammar.starts) {
    if (start < 0 || start >= num_states)
      return InvalidArgument("the compiled constraint has a rule that starts nowhere");
  }
  int64_t next = 0;
  for (const Grammar::State& state : grammar.states) {
    if (state.first_edge != next || state.num_edges < 0 || state.num_edges > num_edges - next)
      return InvalidArgument("the compiled constraint has a state without its edges");
    next += state.num_edges;
  }
  for (const Grammar::Edge& edge : grammar.edges) {
    if (edge.kind > Grammar::EdgeKind::kCall || edge.low > edge.high || edge.target < 0 ||
        edge.target >= num_states || edge.rule < 0 || edge.rule >= std::ssize(grammar.starts))
      return InvalidArgument("the compiled constraint has an edge that leads nowhere");
  }
  return OkStatus();
}

}  // namespace

Status CheckGrammar(const Grammar& grammar, const std::vector<std::string>& names) {
  LAMINA_RETURN_IF_ERROR(CheckRanges(grammar));
  const FirstCalls first(grammar);
  if (first.too_many())
    return InvalidArgument("the compiled constraint has rules that share states");
  // Depth first, without recursion: rules may form long chains.
  enum class Mark : uint8_t { kNew, kOpen, kDone };
  std::vector<Mark> marks(grammar.starts.size(), Mark::kNew);
  std::vector<std::pair<int32_t, size_t>> path;  // a rule, and how many of its calls are done
  for (int32_t root = 0; root < std::ssize(grammar.starts); ++root) {
    if (marks[static_cast<size_t>(root)] != Mark::kNew) continue;
    path.assign(1, {root, 0});
    marks[static_cast<size_t>(root)] = Mark::kOpen;
    while (!path.empty()) {
      auto& [rule, done] = path.back();
      if (done == first.of(rule).size()) {
        marks[static_cast<size_t>(rule)] = Mark::kDone;
        path.pop_back();
        continue;
      }
      const int32_t called = first.of(rule)[done++];
      if (marks[static_cast<size_t>(called)] == Mark::kOpen) {
        const auto at = static_cast<size_t>(called);
        const std::string name = at < names.size() && !names[at].empty()
                                     ? "the rule '" + names[at] + "'"
                                     : "one of its rules";
        return InvalidArgument("the grammar is left-recursive: " + name +
                               " may begin with itself, before any character");
      }
      if (marks[static_cast<size_t>(called)] == Mark::kDone) continue;
      marks[static_cast<size_t>(called)] = Mark::kOpen;
      path.emplace_back(called, 0);
    }
  }
  return OkStatus();
}

std::string Grammar::ToBytes() const {
  std::string bytes(kMagic);
  for (const size_t size : {states.size(), edges.size(), starts.size()})
    Append(static_cast<uint32_t>(size), bytes);
  for (int64_t from = 0; from < std::ssize(states); ++from) {
    const State& state = states[static_cast<size_t>(from)];
    Append(static_cast<uint32_t>(state.num_edges) << 1 | (state.accepts ? 1U : 0U), bytes);
    for (const Edge& edge : std::span(edges).subspan(static_cast<size_t>(state.first_edge),
                                                     static_cast<size_t>(state.num_edges))) {
      bytes += static_cast<char>(edge.kind);
      Append(Distance(from, edge.target), bytes);
      if (edge.kind == EdgeKind::kBytes) {
        bytes += static_cast<char>(edge.low);
        bytes += static_cast<char>(edge.high);
      }
      if (edge.kind == EdgeKind::kCall) Append(static_cast<uint32_t>(edge.rule), bytes);
    }
  }
  for (const int32_t start : starts) Append(static_cast<uint32_t>(start), bytes);
  return bytes;
}

namespace {

bool TakeEdge(std::string_view& bytes, int64_t from, Grammar::Edge& edge) {
  uint8_t kind = 0;
  uint32_t distance = 0, rule = 0;
  if (!TakeByte(bytes, kind) || kind > static_cast<uint8_t>(Grammar::EdgeKind::kCall)) return false;
  if (!Take(bytes, distance)) return false;
  const int64_t target = from + Ahead(distance);
  if (target < 0 || target >= kMaxGrammarStates) return false;
  edge.kind = static_cast<Grammar::EdgeKind>(kind);
  edge.target = static_cast<int32_t>(target);
  if (edge.kind == Grammar::EdgeKind::kBytes)
    return TakeByte(bytes, edge.low) && TakeByte(bytes, edge.high);
  if (edge.kind != Grammar::EdgeKind::kCall) return true;
  if (!Take(bytes, rule) || rule > INT32_MAX) return false;
  edge.rule = static_cast<int32_t>(rule);
  return true;
}

}  // namespace

Result<Grammar> Grammar::FromBytes(std::string_view bytes) {
  const Status broken = InvalidArgument("the bytes are no compiled constraint");
  if (!bytes.starts_with(kMagic)) return broken;
  bytes.remove_prefix(kMagic.size());
  uint32_t num_states = 0, num_edges = 0, num_starts = 0;
  if (!Take(bytes, num_states) || !Take(bytes, num_edges) || !Take(bytes, num_starts))
    return broken;
  // Each takes some bytes, so that sizes are held against what is there before memory is taken.
  if (num_states > bytes.size() || num_edges > bytes.size() / 2 || num_starts > bytes.size())
    return broken;
  Grammar grammar;
  grammar.states.resize(num_states);
  grammar.edges.resize(num_edges);
  grammar.starts.resize(num_starts);
  size_t next = 0;
  for (size_t from = 0; from < num_states; ++from) {
    uint32_t packed = 0;
    if (!Take(bytes, packed) || packed >> 1 > num_edges - next) return broken;
    grammar.states[from] = {static_cast<int32_t>(next), static_cast<int32_t>(packed >> 1),
                            (packed & 1U) != 0};
    for (const size_t end = next + (packed >> 1); next < end; ++next) {
      if (!TakeEdge(bytes, static_cast<int64_t>(from), grammar.edges[next])) return broken;
    }
  }
  for (int32_t& start : grammar.starts) {
    uint32_t taken = 0;
    if (!Take(bytes, taken) || taken >= num_states) return broken;
    start = static_cast<int32_t>(taken);
  }
  if (!bytes.empty() || next != num_edges) return broken;
  LAMINA_RETURN_IF_ERROR(CheckGrammar(grammar));
  return grammar;
}

}  // namespace lamina
