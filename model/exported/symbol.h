// What a node of an exported program is, while it is being imported.
#pragma once

#include <cstdint>
#include <vector>

#include "model/exported/layout.h"
#include "model/exported/term.h"

namespace lamina {

struct Symbol {
  enum class Kind {
    kUnused,     // nobody needs it
    kTokens,     // the rows' token ids
    kPositions,  // the rows' positions, plus number
    kAngles,     // positions times the frequencies of `table`
    kCos,        // of such angles, times number
    kSin,        //
    kWeight,     // node; number is what has been added to its elements
    kConstant,   // node
    kTensor,     // term, seen as layout
    kSeveral,    // outputs of one operator
  };
  Kind kind = Kind::kUnused;
  Layout layout = {};
  double number = 0;
  int32_t table = -1;
  int32_t node = -1;
  Term* term = nullptr;
  std::vector<Symbol> several = {};

  bool Is(Kind is) const { return kind == is; }
  bool IsTrigonometric() const { return kind == Kind::kCos || kind == Kind::kSin; }
  bool HasLayout() const { return kind != Kind::kUnused && kind != Kind::kSeveral; }
};

}  // namespace lamina
