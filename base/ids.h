// Ids of different types, which the compiler does not let be mixed up, and the numbers of token
// slots and vocabulary tokens.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace lamina {

template <typename Tag, typename Rep = uint64_t>
struct Id {
  Rep value = 0;

  friend constexpr auto operator<=>(Id, Id) = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value; }
};

// One client request; unique for the life of a manager.
using RequestId = Id<struct RequestTag>;
using SequenceId = Id<struct SequenceTag>;    // one token stream; a request with n > 1 has several
using StepId = Id<struct StepTag>;            // one step of one batch; grows by one
using NodeId = Id<struct NodeTag, uint32_t>;  // a node of either role; never an index; 0: none

// Where one token's K and V live in a memory node's slab: [0, capacity_tokens of that node).
using TokenSlot = uint32_t;

// A token of the vocabulary, as in config.json and the tokenizer.
using TokenId = int32_t;

}  // namespace lamina

template <typename Tag, typename Rep>
struct std::hash<lamina::Id<Tag, Rep>> {
  size_t operator()(lamina::Id<Tag, Rep> id) const noexcept { return std::hash<Rep>{}(id.value); }
};
