// What a node of an exported program has become, while the program is being imported: tokens, a
// weight, a tensor that is a view of a term, and so on. Handlers of operators make symbols of
// symbols (importer.h).
#pragma once

#include <cstdint>
#include <vector>

#include "model/exported/layout.h"
#include "model/exported/term.h"

namespace lamina {

// The meaning of the other members depends on `kind`, which names those that it uses. `layout` is
// there unless the kind is kUnused or kSeveral: it says how the axes of a weight or constant lie in
// its elements, and those of a tensor in the term's row. A value, cheap to copy but for `several`.
struct Symbol {
  enum class Kind {
    kUnused,     // nothing that can be computed from
    kTokens,     // the rows' token ids
    kPositions,  // the rows' positions, plus number
    kAngles,     // positions times the frequencies of `table`
    kCos,        // cosines of such angles, times number
    kSin,        // sines of such angles, times number
    kWeight,     // the weight `node`; number has been added to its elements
    kConstant,   // the constant `node`
    kTensor,     // term, seen as layout
    kSeveral,    // the outputs of one operator, in `several`
  };
  Kind kind = Kind::kUnused;
  Layout layout = {};
  double number = 0;
  int32_t table = -1;  // index into Importer::tables_
  int32_t node = -1;   // index into ExportedProgram::nodes
  // Owned by the importer's TermTable.
  Term* term = nullptr;
  std::vector<Symbol> several = {};

  bool Is(Kind is) const { return kind == is; }
  bool IsTrigonometric() const { return kind == Kind::kCos || kind == Kind::kSin; }
  bool HasLayout() const { return kind != Kind::kUnused && kind != Kind::kSeveral; }
};

}  // namespace lamina
