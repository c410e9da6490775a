// The work behind ImportProgram (import.h). Nodes are taken in their order: views and arithmetic
// become symbols and terms (view_operators.cc, row_operators.cc, rotary_operators.cc,
// expert_operators.cc), and a term becomes operators of the graph when an attention or the logits
// need it (emitter.cc).
//
// A handler that fails says what is wrong with the operator in a few words, kUnimplemented or
// kInvalidArgument; Explain adds where it stands.
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

// Imports one program once. Thread: owner.
class Importer {
 public:
  // Borrows the program.
  explicit Importer(const ExportedProgram& program) : program_(program) {}

  // The whole import. Call it once.
  Result<Graph> Run();

 private:
  // Makes an operator's result from its arguments. A handler serves several operators where they
  // differ in little, and tells them apart by `node().op`.
  using Handler = Result<Symbol> (Importer::*)(Arguments& args);
  // Null for an operator that lamina has nothing for.
  static Handler FindHandler(const std::string& op);

  // view_operators.cc: operators that compute nothing.
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
  // Elements [first, end) of an axis, every step-th.
  Result<Symbol> SliceOf(Symbol of, int axis, int64_t first, int64_t end, int64_t step);

  // row_operators.cc: operators that compute a row from rows of the same token, and attention.
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

  // Parts of Arithmetic, by operator and by what the operands are.
  Result<Symbol> Add(Symbol a, Symbol b);
  Result<Symbol> Subtract(Symbol a, Symbol b);
  Result<Symbol> Multiply(Symbol a, Symbol b);
  Result<Symbol> WithNumber(const std::string& op, Symbol a, double number);
  Result<Symbol> AddWeight(const Symbol& a, const Symbol& weight);
  Result<Symbol> MultiplyWeight(const Symbol& a, const Symbol& weight);
  // x times the matrix `weight`, whose axes are [in, out] if `in_first`, else [out, in] as in
  // PyTorch's linear. `bias` is a node, or -1.
  Result<Symbol> LinearOf(const Symbol& x, const Symbol& weight, bool in_first, int32_t bias);
  // Number of tokens that a row of this attention attends to, its own among them; 0: all.
  Result<int64_t> WindowOf(Arguments& args);
  // Keys or values without the copies that were made of them for the query heads of a group;
  // `num_heads` becomes the number of KV heads.
  Result<Term*> KeysOrValues(const Symbol& of, int* num_heads);

  // expert_operators.cc: routers, and mixtures of experts.
  struct ExpertMatrices {
    std::vector<Symbol> gate, up, down;  // of each expert
  };
  Result<Symbol> Softmax(Arguments& args);
  Result<Symbol> Largest(Arguments& args);
  Result<Symbol> Sum(Arguments& args);
  Result<Symbol> Divide(const Symbol& a, const Symbol& b);
  Result<Symbol> Experts(Arguments& args);
  Status CheckRows(const Symbol& x, int axis) const;
  // That there is one of each for each of the experts, for rows of `width` elements.
  Status CheckMatrices(const ExpertMatrices& matrices, int64_t num_experts, int64_t width) const;

  // rotary_operators.cc: cosines and sines of positions times frequencies, and what they rotate.
  Result<Symbol> Angle(Arguments& args);
  Result<Symbol> AnglesOf(const Symbol& positions, const Symbol& frequencies);
  Result<Symbol> TimesTrigonometric(const Symbol& x, const Symbol& factor);
  Result<Symbol> Cat(Arguments& args);
  Result<Symbol> Stack(Arguments& args);
  // The pairs (a, b) as (-b, a), where `first` is a and `negated` is -b.
  Result<Symbol> Rotated(const Symbol& negated, const Symbol& first, bool interleaved);
  // Heads whose first elements are `turned` and whose other elements are `rest`, as they were.
  Result<Symbol> JoinHeads(const Symbol& turned, const Symbol& rest);

  // importer.cc: the loop over the nodes, and what the handlers share.
  const ExportedNode& node() const { return program_.nodes[static_cast<size_t>(now_)]; }
  // The symbol of a node; checks an operator's shape against the one in the file.
  Result<Symbol> Import(const ExportedNode& node);
  // The same error with the file, the operator, the node and the line of forward code.
  Status Explain(const Status& status, int32_t node) const;
  Term* Make(TermKey key) { return terms_.Make(std::move(key), now_); }
  // The elements of the tensor's layout as a term of their own.
  Term* TermOf(const Symbol& tensor) {
    return terms_.MakeColumns(tensor.term, tensor.layout.RowColumns(), now_);
  }
  // A tensor of a new term.
  Symbol MakeTensor(TermKey key, Layout layout);
  // REQUIRES: IsNumber(constant).
  double NumberOf(const Symbol& constant) const {
    return program_.nodes[static_cast<size_t>(constant.node)].data[0];
  }
  // Whether it is a constant of one element.
  bool IsNumber(const Symbol& symbol) const;
  // Whether it is all of a weight, with its axes as in the checkpoint.
  bool IsAsStored(const Symbol& weight) const;
  // Whether it has all elements of a constant in the order of the file, some perhaps repeated.
  bool IsInOrder(const Symbol& constant) const;

  // emitter.cc: the operators of a term, which are made on the first call.
  Result<Tensor> Emit(Term* term);
  Result<Tensor> EmitNew(Term* term);
  Result<Tensor> EmitLinear(Term* linear, const Columns& columns, int32_t node);
  Result<Tensor> EmitColumns(Term* term);
  Result<Tensor> EmitProduct(Term* term);
  Result<Tensor> EmitScale(Term* term);
  Result<Tensor> EmitNorm(Term* term);
  Result<Tensor> EmitRope(Term* term);
  Result<Tensor> EmitExperts(Term* term);  // expert_operators.cc
  // The name that a node's operator gets in the graph: its module's path and its own name.
  ModulePath PathOf(int32_t node) const;
  // A reference to all of a weight's tensor.
  WeightRef WholeWeight(int32_t node) const;

  const ExportedProgram& program_;
  Tracer tracer_;
  TermTable terms_;
  // What nodes [0, now_) have become.
  std::vector<Symbol> symbols_;
  // Frequencies of rotary embeddings, each list once.
  std::vector<std::vector<float>> tables_;
  std::map<std::vector<float>, int32_t> table_of_;  // index into tables_
  std::vector<ExpertMatrices> experts_;             // of the mixtures so far
  int32_t now_ = 0;                                 // the node that is being imported
  int num_attentions_ = 0;
  int64_t num_values_ = 0;  // the id of the next kValue term
  int depth_ = 0;           // of the recursion in Emit
  // The node that an error comes from: the one being imported, or the one that made a term which
  // cannot be emitted.
  int32_t failed_node_ = -1;
};

}  // namespace lamina
