// What a constrained answer may be: a set of byte strings, as rules that call each other. Each rule
// is a nondeterministic finite automaton over bytes whose edges may also call a rule: what a
// regular expression, a JSON schema and a context-free grammar are compiled to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/sampling_params.h"
#include "base/status.h"

namespace lamina {

// Of all rules together. A grammar that needs more is refused where it is compiled.
inline constexpr int32_t kMaxGrammarStates = 1 << 16;
inline constexpr int32_t kMaxGrammarEdges = 1 << 18;

struct Grammar {
  enum class EdgeKind : uint8_t { kEmpty, kBytes, kCall };
  struct Edge {
    EdgeKind kind = EdgeKind::kEmpty;
    uint8_t low = 0, high = 0;  // kBytes: the bytes in [low, high]
    int32_t rule = 0;           // kCall: whose text stands here
    int32_t target = 0;         // the state behind it

    friend bool operator==(const Edge&, const Edge&) = default;
  };
  struct State {
    int32_t first_edge = 0, num_edges = 0;
    bool accepts = false;  // its rule may end here

    friend bool operator==(const State&, const State&) = default;
  };

  std::vector<State> states;
  std::vector<Edge> edges;      // of all states, state by state
  std::vector<int32_t> starts;  // by rule, a state; rule 0 is the whole text

  // The grammar as bytes, for another process; at most kMaxGrammarBytes.
  std::string ToBytes() const;
  // kInvalidArgument if the bytes are none of ToBytes, or hold what CheckGrammar refuses.
  static Result<Grammar> FromBytes(std::string_view bytes);

  friend bool operator==(const Grammar&, const Grammar&) = default;
};

// kInvalidArgument if a state, a rule or an edge is out of range, there are too many, or a rule is
// left-recursive: it calls itself before any byte. `names`, by rule, are for messages.
Status CheckGrammar(const Grammar& grammar, const std::vector<std::string>& names = {});

}  // namespace lamina
