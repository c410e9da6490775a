// Makes a graph of an exported program. Groups of PyTorch's operators are recognised as operators
// that lamina has kernels for, views of tensors become arithmetic on strides, and attention is
// where the program calls scaled_dot_product_attention. docs/export.md lists what is recognised.
#pragma once

#include "base/status.h"
#include "model/exported/exported_program.h"
#include "model/graph.h"

namespace lamina {

// kUnimplemented for what lamina has nothing for, kInvalidArgument for a program that contradicts
// itself. Both name the file, the operator, its node and the line of forward code that it comes
// from.
Result<Graph> ImportProgram(const ExportedProgram& program);

}  // namespace lamina
