#include "model/exported/importer.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "model/exported/import.h"

namespace lamina {

Importer::Handler Importer::FindHandler(const std::string& op) {
  // PyTorch's names: aten.OPERATOR.OVERLOAD. "getitem" picks one of several outputs.
  static const std::map<std::string, Handler, std::less<>> kHandlers = {
      {"aten.clone.default", &Importer::Same},
      {"aten.contiguous.default", &Importer::Same},
      {"aten.alias.default", &Importer::Same},
      {"aten.detach.default", &Importer::Same},
      {"aten.lift_fresh_copy.default", &Importer::Same},
      {"aten.type_as.default", &Importer::Same},
      {"aten._to_copy.default", &Importer::Convert},
      {"aten.view.default", &Importer::Reshape},
      {"aten.reshape.default", &Importer::Reshape},
      {"aten._unsafe_view.default", &Importer::Reshape},
      {"aten.flatten.using_ints", &Importer::Flatten},
      {"aten.transpose.int", &Importer::Transpose},
      {"aten.t.default", &Importer::Transpose},
      {"aten.permute.default", &Importer::Permute},
      {"aten.unsqueeze.default", &Importer::Unsqueeze},
      {"aten.squeeze.dim", &Importer::Squeeze},
      {"aten.expand.default", &Importer::Expand},
      {"aten.slice.Tensor", &Importer::Slice},
      {"aten.select.int", &Importer::Select},
      {"aten.index.Tensor", &Importer::Index},
      {"aten.split.Tensor", &Importer::Split},
      {"aten.split_with_sizes.default", &Importer::Split},
      {"getitem", &Importer::GetItem},
      {"aten.repeat_interleave.self_int", &Importer::RepeatEach},
      {"aten.embedding.default", &Importer::Embedding},
      {"aten.linear.default", &Importer::Linear},
      {"aten.addmm.default", &Importer::Linear},
      {"aten.matmul.default", &Importer::MatMul},
      {"aten.mm.default", &Importer::MatMul},
      {"aten.layer_norm.default", &Importer::LayerNorm},
      {"aten.rms_norm.default", &Importer::RmsNorm},
      {"aten.neg.default", &Importer::Unary},
      {"aten.tanh.default", &Importer::Unary},
      {"aten.sigmoid.default", &Importer::Unary},
      {"aten.silu.default", &Importer::Unary},
      {"aten.gelu.default", &Importer::Unary},
      {"aten.relu.default", &Importer::Unary},
      {"aten.rsqrt.default", &Importer::Unary},
      {"aten.pow.Tensor_Scalar", &Importer::Power},
      {"aten.mean.dim", &Importer::Mean},
      {"aten.softmax.int", &Importer::Softmax},
      {"aten._softmax.default", &Importer::Softmax},
      {"aten.topk.default", &Importer::Largest},
      {"aten.sum.dim_IntList", &Importer::Sum},
      {"lamina.experts.default", &Importer::Experts},
      {"aten.add.Tensor", &Importer::Arithmetic},
      {"aten.add.Scalar", &Importer::Arithmetic},
      {"aten.sub.Tensor", &Importer::Arithmetic},
      {"aten.sub.Scalar", &Importer::Arithmetic},
      {"aten.mul.Tensor", &Importer::Arithmetic},
      {"aten.mul.Scalar", &Importer::Arithmetic},
      {"aten.div.Tensor", &Importer::Arithmetic},
      {"aten.div.Scalar", &Importer::Arithmetic},
      {"aten.scaled_dot_product_attention.default", &Importer::Attention},
      {"aten.cos.default", &Importer::Angle},
      {"aten.sin.default", &Importer::Angle},
      {"aten.cat.default", &Importer::Cat},
      {"aten.stack.default", &Importer::Stack},
  };
  const auto found = kHandlers.find(op);
  return found == kHandlers.end() ? nullptr : found->second;
}

Result<Graph> Importer::Run() {
  const auto num_nodes = static_cast<int32_t>(program_.nodes.size());
  for (now_ = 0; now_ < num_nodes; ++now_) {
    failed_node_ = now_;
    Result<Symbol> symbol = Import(node());
    if (!symbol.ok()) return Explain(symbol.status(), failed_node_);
    symbols_.push_back(std::move(*symbol));
  }
  const Symbol& logits = symbols_[static_cast<size_t>(program_.logits)];
  now_ = failed_node_ = program_.logits;
  // From here on errors come from the logits or from a term that they need.
  if (!logits.Is(Symbol::Kind::kTensor) || logits.layout.RowAxis() < 0) {
    return Explain(Unimplemented("the logits are no row per token"), now_);
  }
  if (num_attentions_ == 0)
    return Explain(Unimplemented("the program calls no scaled_dot_product_attention"), now_);
  const Result<Tensor> emitted = Emit(TermOf(logits));
  if (!emitted.ok()) return Explain(emitted.status(), failed_node_);
  return tracer_.Finish(*emitted);
}

Result<Symbol> Importer::Import(const ExportedNode& node) {
  Symbol symbol;
  symbol.node = now_;
  switch (node.kind) {
    case ExportedNode::Kind::kTokens: symbol.kind = Symbol::Kind::kTokens; break;
    case ExportedNode::Kind::kPositions: symbol.kind = Symbol::Kind::kPositions; break;
    case ExportedNode::Kind::kWeight: symbol.kind = Symbol::Kind::kWeight; break;
    case ExportedNode::Kind::kConstant: symbol.kind = Symbol::Kind::kConstant; break;
    case ExportedNode::Kind::kOperator: {
      const Handler handler = FindHandler(node.op);
      if (handler == nullptr) return Unimplemented("lamina has nothing for this operator");
      Arguments args(node, symbols_);
      Result<Symbol> made = (this->*handler)(args);
      // A wrong argument explains more than what the handler made of its default.
      LAMINA_RETURN_IF_ERROR(args.status());
      // The file says which shape PyTorch got. A handler that comes to another has misunderstood
      // the operator, or the file is wrong.
      if (!made.ok() || !made->HasLayout() || made->layout.Shape() == node.shape) return made;
      return InvalidArgument("its shape should be " + ShapeText(made->layout));
    }
  }
  const bool by_row =
      symbol.kind == Symbol::Kind::kTokens || symbol.kind == Symbol::Kind::kPositions;
  symbol.layout = Layout::Of(node.shape, by_row ? 1 : -1);
  return symbol;
}

Status Importer::Explain(const Status& status, int32_t index) const {
  const ExportedNode& at = program_.nodes[static_cast<size_t>(index)];
  const std::string what = at.kind == ExportedNode::Kind::kOperator
                               ? at.op + " (node " + at.name + ")"
                               : "node " + at.name;
  const std::string source = at.source.empty() ? "" : "; " + at.source;
  return {status.code(), fmt::format("{}: {} cannot be mapped: {}{}", program_.path, what,
                                     status.message(), source)};
}

Symbol Importer::MakeTensor(TermKey key, Layout layout) {
  Symbol tensor;
  tensor.kind = Symbol::Kind::kTensor;
  tensor.layout = std::move(layout);
  tensor.term = Make(std::move(key));
  return tensor;
}

bool Importer::IsNumber(const Symbol& symbol) const {
  return symbol.Is(Symbol::Kind::kConstant) &&
         program_.nodes[static_cast<size_t>(symbol.node)].data.size() == 1;
}

bool Importer::IsAsStored(const Symbol& weight) const {
  return weight.Is(Symbol::Kind::kWeight) &&
         weight.layout == Layout::Of(program_.nodes[static_cast<size_t>(weight.node)].shape, -1);
}

bool Importer::IsInOrder(const Symbol& constant) const {
  if (!constant.Is(Symbol::Kind::kConstant)) return false;
  const Layout stored = Layout::Of(program_.nodes[static_cast<size_t>(constant.node)].shape, -1);
  return constant.layout.RowColumns(true) == stored.RowColumns();
}

Result<Graph> ImportProgram(const ExportedProgram& program) { return Importer(program).Run(); }

}  // namespace lamina
