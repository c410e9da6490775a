// The file that scripts/export_model.py writes, lamina_graph.json: a program of PyTorch operators
// over the rows of one sequence, as torch.export recorded it. docs/export.md describes the format.
// This is its reader, which checks the form of the file; what the program means is for import.h.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace lamina {

// What one name in the file stands for. Inputs, weights, constants and operators are all nodes, in
// one list, in an order in which they can be computed. Fields that belong to another kind are
// empty.
struct ExportedNode {
  enum class Kind { kTokens, kPositions, kWeight, kConstant, kOperator };
  Kind kind = Kind::kOperator;
  std::string name;
  // Empty for an operator with several outputs (and for a scalar).
  std::vector<int64_t> shape;

  std::string tensor;  // a weight's name in the checkpoint
  // A constant's elements. Empty for a mask.
  std::vector<double> data;
  // A mask: for each row the range [first, second) of keys that it attends to.
  std::vector<std::pair<int64_t, int64_t>> sees;

  // An operator's full name in PyTorch, "aten.linear.default".
  std::string op;
  // An operator's arguments by name, all of them. One that is another node is {"node": index}, and
  // its index is smaller than this node's.
  nlohmann::json args;
  std::string module;  // path of the module whose forward code this is
  std::string source;  // file, line and text of that code; "" if not known
};

// A value. The nodes reference each other by their index.
struct ExportedProgram {
  std::string path;           // the file's, for messages
  int64_t rows = 0;           // tokens that the program was exported with
  int64_t max_positions = 0;  // of the model's config
  std::vector<ExportedNode> nodes;
  int32_t logits = -1;  // index into nodes

  // Reads the file. kNotFound if it cannot be read. kInvalidArgument says what is wrong in it: no
  // JSON, another format or version, a key or node that is missing, two nodes of one name, a node
  // that reads one which stands behind it (so there are no cycles), a size that is negative or
  // absurd.
  static Result<ExportedProgram> Load(const std::string& path);
  // The same for the text of a file; `path` is for messages.
  static Result<ExportedProgram> Parse(const std::string& text, const std::string& path);
};

}  // namespace lamina
