// Makes a graph of an exported program: PyTorch's operators are recognised as the operators that
// lamina has kernels for, views of tensors become arithmetic, and attention is where the program
// calls scaled_dot_product_attention.
#pragma once

#include "base/status.h"
#include "model/exported/exported_program.h"
#include "model/graph.h"

namespace lamina {

// kUnimplemented for what cannot be mapped, kInvalidArgument for what makes no sense; both name
// file, operator, node and the line of forward code that it comes from.
Result<Graph> ImportProgram(const ExportedProgram& program);

}  // namespace lamina
