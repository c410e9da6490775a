// The work behind ImportProgram. Nodes are taken in their order: views and arithmetic become
// symbols and terms (view_operators.cc, row_operators.cc, rotary_operators.cc); a term becomes
// operators of the graph when attention or the logits need it (emitter.cc).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/exported/arguments.h"
#include "model/exported/exported_program.h"
#include "model/exported/symbol.h"
#include "model/exported/term.h"
#include "model/tracer.h"

namespace lamina {

class Importer {
 public:
  // REQUIRES: the program outlives it.
  explicit Importer(const ExportedProgram& program) : program_(program) {}

  Result<Graph> Run();

 private:
  // An operator of the program: its result from its arguments. Operators of one handler differ by
  // `node().op`.
  using Handler = Result<Symbol> (Importer::*)(Arguments& args);
  static Handler FindHandler(const std::string& op);

  // view_operators.cc
  Result<Symbol> Same(Arguments& args);
  Result<Symbol> Convert(Arguments& args);
  Result<Symbol> Reshape(Arguments& args);
  Result<Symbol> Flatten(Arguments& args);
  Result<Symbol> Transpose(Arguments& args);
  Result<Symbol> Permute(Arguments& args);
  Result<Symbol> Unsqueeze(Arguments& args);
  Result<Symbol> Squeeze(Arguments& args);
  Result<Symbol> Expand(Arguments& args);
  Result<Symbol> Slice(Arguments& args);
  Result<Symbol> Select(Arguments& args);
  Result<Symbol> Index(Arguments& args);
  Result<Symbol> Split(Arguments& args);
  Result<Symbol> GetItem(Arguments& args);
  Result<Symbol> RepeatEach(Arguments& args);
  Result<Symbol> SliceOf(Symbol of, int axis, int64_t first, int64_t end, int64_t step);

  // row_operators.cc
  Result<Symbol> Embedding(Arguments& args);
  Result<Symbol> Linear(Arguments& args);
  Result<Symbol> MatMul(Arguments& args);
  Result<Symbol> LayerNorm(Arguments& args);
  Result<Symbol> RmsNorm(Arguments& args);
  Result<Symbol> Unary(Arguments& args);
  Result<Symbol> Power(Arguments& args);
  Result<Symbol> Mean(Arguments& args);
  Result<Symbol> Arithmetic(Arguments& args);
  Result<Symbol> Attention(Arguments& args);

  Result<Symbol> Add(Symbol a, Symbol b);
  Result<Symbol> Subtract(Symbol a, Symbol b);
  Result<Symbol> Multiply(Symbol a, Symbol b);
  Result<Symbol> WithNumber(const std::string& op, Symbol a, double number);
  Result<Symbol> AddWeight(const Symbol& a, const Symbol& weight);
  Result<Symbol> MultiplyWeight(const Symbol& a, const Symbol& weight);
  Result<Symbol> LinearOf(const Symbol& x, const Symbol& weight, bool in_first, int32_t bias);
  Result<int64_t> WindowOf(Arguments& args);
  Result<Term*> KeysOrValues(const Symbol& of, int* num_heads);

  // rotary_operators.cc
  Result<Symbol> Angle(Arguments& args);
  Result<Symbol> AnglesOf(const Symbol& positions, const Symbol& frequencies);
  Result<Symbol> TimesTrigonometric(const Symbol& x, const Symbol& factor);
  Result<Symbol> Cat(Arguments& args);
  Result<Symbol> Stack(Arguments& args);
  Result<Symbol> Rotated(const Symbol& negated, const Symbol& first, bool interleaved);
  Result<Symbol> JoinHeads(const Symbol& turned, const Symbol& rest);

  // importer.cc
  const ExportedNode& node() const { return program_.nodes[static_cast<size_t>(now_)]; }
  Result<Symbol> Import(const ExportedNode& node);
  Status Explain(const Status& status, int32_t node) const;
  Term* Make(TermKey key) { return terms_.Make(std::move(key), now_); }
  Term* TermOf(const Symbol& tensor) {
    return terms_.MakeColumns(tensor.term, tensor.layout.RowColumns(), now_);
  }
  Symbol MakeTensor(TermKey key, Layout layout);
  double NumberOf(const Symbol& constant) const {
    return program_.nodes[static_cast<size_t>(constant.node)].data[0];
  }
  bool IsNumber(const Symbol& symbol) const;
  // A weight, all of it, its axes as in the checkpoint.
  bool IsAsStored(const Symbol& weight) const;
  // All of its elements as they stand in the file, some repeated perhaps.
  bool IsInOrder(const Symbol& constant) const;

  // emitter.cc
  Result<Tensor> Emit(Term* term);
  Result<Tensor> EmitNew(Term* term);
  Result<Tensor> EmitLinear(Term* linear, const Columns& columns, int32_t node);
  Result<Tensor> EmitColumns(Term* term);
  Result<Tensor> EmitProduct(Term* term);
  Result<Tensor> EmitScale(Term* term);
  Result<Tensor> EmitNorm(Term* term);
  Result<Tensor> EmitRope(Term* term);
  ModulePath PathOf(int32_t node) const;
  WeightRef WholeWeight(int32_t node) const;

  const ExportedProgram& program_;
  Tracer tracer_;
  TermTable terms_;
  std::vector<Symbol> symbols_;                     // [nodes so far]
  std::vector<std::vector<float>> tables_;          // of frequencies
  std::map<std::vector<float>, int32_t> table_of_;  // index into tables_
  int32_t now_ = 0;                                 // the node that is being imported
  int num_attentions_ = 0;
  int64_t num_values_ = 0;
  int depth_ = 0;             // of Emit
  int32_t failed_node_ = -1;  // the term that could not be emitted comes from there
};

}  // namespace lamina
