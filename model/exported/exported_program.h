// The file that scripts/export_model.py writes: a program of PyTorch operators over the rows of one
// sequence, as torch.export found it. docs/export.md describes the format.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lamina {

// What a name of the file stands for. Everything that operators read stands in one list, in an
// order in which it can be computed.
struct ExportedNode {
  enum class Kind { kTokens, kPositions, kWeight, kConstant, kOperator };
  Kind kind = Kind::kOperator;
  std::string name;
  std::vector<int64_t> shape;  // empty for an operator with several outputs

  std::string tensor;        // weights: their name in the checkpoint
  std::vector<double> data;  // constants; empty for a mask
  // Masks: of each row, the keys [first, second) that it attends to.
  std::vector<std::pair<int64_t, int64_t>> sees;

  std::string op;       // operators: "aten.linear.default"
  nlohmann::json args;  // by name, all of them; another node is {"node": index}
  std::string module;   // path of the module whose forward code this is
  std::string source;   // file, line and text of that code; "" if not known
};

struct ExportedProgram {
  std::string path;           // of the file, for messages
  int64_t rows = 0;           // tokens that the program was exported with
  int64_t max_positions = 0;  // as the model's config says
  std::vector<ExportedNode> nodes;
  int32_t logits = -1;  // index into nodes

  // kNotFound, or kInvalidArgument with what is wrong in the file: no JSON, another format, a key
  // or node that is missing, a node that reads one that stands behind it (so there are no cycles),
  // sizes that cannot be.
  static Result<ExportedProgram> Load(const std::string& path);
  static Result<ExportedProgram> Parse(const std::string& text, const std::string& path);
};

}  // namespace lamina
