// Reads the arguments of an operator of an exported program, which docs/export.md describes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/exported/exported_program.h"
#include "model/exported/symbol.h"

namespace lamina {

// A reader of one operator's arguments by name. The first thing that is wrong is kept; later calls
// return defaults (0, "", an unused symbol), so that a handler reads its arguments like a list and
// checks status() once. Thread: owner.
class Arguments {
 public:
  // Borrows both. `symbols` are those of the nodes before this one.
  Arguments(const ExportedNode& node, std::span<const Symbol> symbols)
      : node_(node), symbols_(symbols) {}

  // kInvalidArgument with the first argument that is missing or not of the type that was asked for.
  const Status& status() const { return status_; }

  // Whether the argument is there and not null.
  bool Has(const char* name) const;
  bool IsNode(const char* name) const;  // it is another node
  Symbol Node(const char* name);
  // A list of nodes. A null in the list becomes an unused symbol.
  std::vector<Symbol> Nodes(const char* name);
  int64_t Integer(const char* name);
  double Number(const char* name);
  bool Flag(const char* name);
  // A string; "" if it is null.
  std::string Text(const char* name);
  // A list of integers.
  std::vector<int64_t> Integers(const char* name);
  // The number of an axis of `layout`. A negative argument counts from behind, as in PyTorch.
  int Axis(const char* name, const Layout& layout);

 private:
  // Null, and the argument is rejected, if there is none of that name.
  const nlohmann::json* Find(const char* name);
  // Keeps that the argument is not what was expected, unless something was wrong before.
  void Reject(const char* name, const char* expected);

  const ExportedNode& node_;
  std::span<const Symbol> symbols_;
  Status status_;
};

}  // namespace lamina
