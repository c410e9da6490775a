// How people and scripts see slices: the text and the JSON of `lamina split`.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "splitter/slices.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

const Value& ValueOf(const SlicedModel& model, ValueId id) { return model.graph.values[id]; }

// " -> q", " -> k" or " -> v" (or several) if the attention behind `slice` reads the value as such;
// else "".
std::string Role(const Slice& slice, ValueId value) {
  std::string role;
  if (value == slice.q) role += " -> q";
  if (value == slice.k) role += " -> k";
  if (value == slice.v) role += " -> v";
  return role;
}

std::string WindowText(const Op& attention) {
  const AttentionWindow& window = attention.window;
  if (!window.any()) return "";
  return window.chunked ? fmt::format(", within chunks of {} tokens", window.size)
                        : fmt::format(", over the last {} tokens", window.size);
}

// Equal for slices that do the same work with the weights of different layers. Such slices are
// shown once.
std::string Fingerprint(const SlicedModel& model, const Slice& slice) {
  std::string text;
  for (const Op& op : slice.program) {
    text +=
        fmt::format("{} {} {} {} {} {} {} {}|", OpName(op.kind), ValueOf(model, op.output).width,
                    op.weights.size(), op.eps, op.num_heads, op.head_dim, op.scale, op.soft_cap);
    for (const ValueId input : op.inputs) text += fmt::format("{},", ValueOf(model, input).width);
    text += Role(slice, op.output);
  }
  for (const ValueId value : slice.context_in)
    text += fmt::format("in {}|", ValueOf(model, value).width);
  for (const ValueId value : slice.context_out)
    text += fmt::format("out {}|", ValueOf(model, value).width);
  return text + (slice.attention < 0 ? "last" : WindowText(model.attentions[slice.attention]));
}

std::string ContextText(const SlicedModel& model, const std::vector<ValueId>& context) {
  if (context.empty()) return "nothing";
  std::string text;
  for (const ValueId value : context) {
    if (!text.empty()) text += ", ";
    text += fmt::format("{} ({} bytes per token)", ValueOf(model, value).name,
                        ValueOf(model, value).bytes_per_token);
  }
  return text;
}

// Widths of the text's columns, in characters.
struct SliceTable {
  size_t op = 0, name = 0;
};

std::string SliceText(const SlicedModel& model, const Slice& slice, const SliceTable& columns) {
  std::string text = fmt::format("\nslice {}\n", slice.index);
  if (slice.index > 0) {
    text += fmt::format("  attention output  {}\n", ValueOf(model, slice.attention_out).name);
    text += fmt::format("  context in        {}\n", ContextText(model, slice.context_in));
  }
  for (const Op& op : slice.program) {
    const std::string role =
        Role(slice, op.output) + (op.output == model.graph.logits ? " -> logits" : "");
    text += fmt::format("    {:<{}} {:<{}} {:>7}{}\n", OpName(op.kind), columns.op, op.name,
                        columns.name, ValueOf(model, op.output).width, role);
  }
  if (slice.attention < 0) return text;
  const Op& attention = model.attentions[slice.attention];
  text += fmt::format("  context out       {}\n", ContextText(model, slice.context_out));
  text +=
      fmt::format("  attention {:<7} q {} + k {} + v {} bytes per token there, {} back{}\n",
                  slice.attention, ValueOf(model, slice.q).bytes_per_token,
                  ValueOf(model, slice.k).bytes_per_token, ValueOf(model, slice.v).bytes_per_token,
                  ValueOf(model, attention.output).bytes_per_token, WindowText(attention));
  return text;
}

ordered_json ContextJson(const SlicedModel& model, const std::vector<ValueId>& context) {
  ordered_json list = ordered_json::array();
  for (const ValueId id : context) {
    const Value& value = ValueOf(model, id);
    list.push_back({{"value", value.name},
                    {"width", value.width},
                    {"bytes_per_token", value.bytes_per_token}});
  }
  return list;
}

ordered_json OpJson(const SlicedModel& model, const Op& op) {
  ordered_json inputs = ordered_json::array();
  for (const ValueId input : op.inputs) inputs.push_back(ValueOf(model, input).name);
  ordered_json weights = ordered_json::array();
  for (const WeightRef& weight : op.weights)
    weights.push_back({{"name", weight.name}, {"shape", weight.shape}});
  return {{"op", OpName(op.kind)},
          {"name", op.name},
          {"inputs", inputs},
          {"width", ValueOf(model, op.output).width},
          {"weights", weights}};
}

ordered_json AttentionJson(const SlicedModel& model, int index) {
  const Op& op = model.attentions[index];
  return {{"name", op.name},
          {"layer", op.layer},
          {"num_heads", op.num_heads},
          {"num_kv_heads", op.num_kv_heads},
          {"head_dim", op.head_dim},
          {"window", op.window.size},
          {"chunked", op.window.chunked},
          {"q", ValueOf(model, op.inputs[0]).name},
          {"k", ValueOf(model, op.inputs[1]).name},
          {"v", ValueOf(model, op.inputs[2]).name},
          {"bytes_per_token", model.attention_bytes_per_token(index)}};
}

ordered_json SliceJson(const SlicedModel& model, const Slice& slice) {
  ordered_json program = ordered_json::array();
  for (const Op& op : slice.program) program.push_back(OpJson(model, op));
  ordered_json json = {{"index", slice.index},
                       {"context_in", ContextJson(model, slice.context_in)}};
  json["attention_out"] = slice.attention_out < 0
                              ? ordered_json(nullptr)
                              : ordered_json(ValueOf(model, slice.attention_out).name);
  json["program"] = std::move(program);
  json["attention"] = slice.attention < 0 ? ordered_json(nullptr) : ordered_json(slice.attention);
  json["context_out"] = ContextJson(model, slice.context_out);
  json["context_bytes_per_token"] = slice.context_bytes_per_token;
  return json;
}

}  // namespace

std::string DescribeSlices(const SlicedModel& model, const ModelConfig& config) {
  SliceTable columns;
  for (const Op& op : model.graph.ops)
    columns = {std::max(columns.op, OpName(op.kind).size()),
               std::max(columns.name, op.name.size())};

  std::string text = fmt::format("{}: {} layers, hidden size {}, {} heads and {} KV heads of {}\n",
                                 config.architecture, config.num_layers, config.hidden_size,
                                 config.num_heads, config.num_kv_heads, config.head_dim);
  text +=
      fmt::format("{} attentions, {} slices; widths are elements per token, bytes are of fp32\n",
                  model.attentions.size(), model.slices.size());
  for (size_t i = 0; i < model.slices.size();) {
    text += SliceText(model, model.slices[i], columns);
    // Consecutive slices of one fingerprint are printed once.
    const std::string fingerprint = Fingerprint(model, model.slices[i]);
    size_t end = i + 1;
    while (end < model.slices.size() && Fingerprint(model, model.slices[end]) == fingerprint) ++end;
    if (end == i + 2) text += fmt::format("\nslice {} is like slice {}, one layer on\n", i + 1, i);
    if (end > i + 2)
      text +=
          fmt::format("\nslices {}..{} are like slice {}, each one layer on\n", i + 1, end - 1, i);
    i = end;
  }
  return text;
}

std::string SlicesToJson(const SlicedModel& model, const ModelConfig& config) {
  ordered_json json = {{"architecture", config.architecture},
                       {"num_layers", config.num_layers},
                       {"hidden_size", config.hidden_size}};
  json["attentions"] = ordered_json::array();
  for (size_t i = 0; i < model.attentions.size(); ++i)
    json["attentions"].push_back(AttentionJson(model, static_cast<int>(i)));
  json["slices"] = ordered_json::array();
  for (const Slice& slice : model.slices) json["slices"].push_back(SliceJson(model, slice));
  return json.dump(2) + "\n";
}

}  // namespace lamina
