#include "model/exported/imported_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/exported/exported_program.h"
#include "model/exported/import.h"
#include "model/graph.h"

namespace lamina {
namespace {

// Elements of any value: more than any vocabulary or fused layer has.
constexpr int64_t kMaxWidth = 1 << 24;

// Takes over what the attentions say. They must be alike but for their windows: ModelConfig, and
// the slots of a KV cache, have one shape for all layers.
Status ReadAttentions(const Graph& graph, ModelConfig& config) {
  const Op* first = nullptr;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kAttention) continue;
    if (first == nullptr) first = &op;
    if (op.num_heads != first->num_heads || op.num_kv_heads != first->num_kv_heads ||
        op.head_dim != first->head_dim || op.scale != first->scale) {
      return Unimplemented(op.name + " has other heads than " + first->name);
    }
    config.windows.push_back(op.window);
  }
  config.num_layers = static_cast<int>(config.windows.size());
  config.num_heads = first->num_heads;
  config.num_kv_heads = first->num_kv_heads;
  config.head_dim = first->head_dim;
  // ModelConfig::AttentionScale() is the inverse root of it.
  config.query_pre_attn_scalar = 1 / (double{first->scale} * first->scale);
  if (std::ranges::none_of(config.windows, &AttentionWindow::any)) config.windows.clear();
  return OkStatus();
}

// The widest row that a linear layer reads. In decoders it is that of the MLP's second layer, the
// intermediate size.
int64_t WidestInput(const Graph& graph) {
  int64_t widest = 0;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kLinear) widest = std::max(widest, op.weights[0].shape[1]);
  }
  return widest;
}

// The width of the last sum, where in decoders the residual stream ends. Without any sum, that of
// the embedding.
int64_t HiddenSize(const Graph& graph) {
  int64_t size = 0;
  for (const Op& op : graph.ops) {
    if (op.kind == OpKind::kEmbedding || op.kind == OpKind::kAdd)
      size = graph.values[static_cast<size_t>(op.output)].width;
  }
  return size;
}

}  // namespace

Status ReadImportedModel(const std::string& text, const std::string& path, ModelConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(const ExportedProgram program, ExportedProgram::Parse(text, path));
  LAMINA_ASSIGN_OR_RETURN(Graph graph, ImportProgram(program));
  LAMINA_RETURN_IF_ERROR(ReadAttentions(graph, config).WithContext(path));
  for (const Value& value : graph.values) {
    if (value.width < 1 || value.width > kMaxWidth)
      return InvalidArgument(path + ": " + value.name + " has a width that cannot be");
  }
  config.max_positions = program.max_positions;
  config.intermediate_size = WidestInput(graph);
  config.vocab_size = graph.values[static_cast<size_t>(graph.logits)].width;
  for (const Op& op : graph.ops) {
    if (op.kind != OpKind::kEmbedding) continue;
    if (op.weights[0].shape[0] < config.vocab_size)
      return InvalidArgument(path + ": there are more logits than rows of " + op.name);
    config.hidden_size = HiddenSize(graph);
  }
  if (config.hidden_size == 0) return InvalidArgument(path + ": no embedding of tokens");
  config.imported = std::make_shared<const Graph>(std::move(graph));
  return OkStatus();
}

}  // namespace lamina
