// Reads an operator's arguments. The first thing wrong is kept, so that an operator reads them like
// a list and checks status() once.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/exported/exported_program.h"
#include "model/exported/symbol.h"

namespace lamina {

class Arguments {
 public:
  // Borrows both. `symbols`: of the nodes before this one.
  Arguments(const ExportedNode& node, std::span<const Symbol> symbols)
      : node_(node), symbols_(symbols) {}

  const Status& status() const { return status_; }

  bool Has(const char* name) const;  // and it is not null
  bool IsNode(const char* name) const;
  Symbol Node(const char* name);
  std::vector<Symbol> Nodes(const char* name);  // null in the list: a symbol that is unused
  int64_t Integer(const char* name);
  double Number(const char* name);
  bool Flag(const char* name);
  std::string Text(const char* name);                // "" if it is null
  std::vector<int64_t> Integers(const char* name);   // a list
  int Axis(const char* name, const Layout& layout);  // an integer; from behind if it is negative

 private:
  const nlohmann::json* Find(const char* name);
  void Reject(const char* name, const char* expected);

  const ExportedNode& node_;
  std::span<const Symbol> symbols_;
  Status status_;
};

}  // namespace lamina
