#include "model/exported/exported_program.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <optional>

#include "base/json_keys.h"
#include "base/text_file.h"

namespace lamina {
namespace {

using nlohmann::json;

constexpr std::string_view kFormat = "lamina graph";
constexpr int64_t kVersion = 1;
// The size of an axis, and the number of elements of a tensor: far beyond any model.
constexpr IntRange kSizes = {0, int64_t{1} << 40};
constexpr size_t kMaxDimensions = 16;
// Resolve recurses into lists of arguments, and a file must not be able to exhaust the stack.
constexpr size_t kMaxArgumentDepth = 4;

// Reads one file, once.
class Reader {
 public:
  Reader(const json& file, std::string path) : keys_(file, path) {
    program_.path = std::move(path);
  }

  Result<ExportedProgram> Read() {
    LAMINA_RETURN_IF_ERROR(ReadHead());
    // Nodes can be read only after everything that they may name.
    LAMINA_RETURN_IF_ERROR(ReadTensors("weights", ExportedNode::Kind::kWeight));
    LAMINA_RETURN_IF_ERROR(ReadTensors("constants", ExportedNode::Kind::kConstant));
    const json* const nodes = keys_.Find("nodes");
    if (nodes == nullptr || !nodes->is_array()) return Wrong("\"nodes\" must be a list");
    for (const json& node : *nodes) LAMINA_RETURN_IF_ERROR(ReadOperator(node));
    const std::optional<std::string> logits = keys_.OptionalString("logits");
    if (!logits || !index_of_.contains(*logits))
      return Wrong("\"logits\" must name one of the nodes");
    program_.logits = index_of_.at(*logits);
    return std::move(program_);
  }

 private:
  Status Wrong(const std::string& what) const {
    return InvalidArgument(program_.path + ": " + what);
  }

  Status ReadHead() {
    if (keys_.OptionalString("format").value_or("") != kFormat ||
        keys_.OptionalInt("version", {0, 1 << 20}).value_or(-1) != kVersion) {
      return Wrong(
          fmt::format("not a file of format \"{}\", version {}; scripts/export_model.py writes it",
                      kFormat, kVersion));
    }
    program_.rows = keys_.Int("rows", {2, 1 << 20});
    program_.max_positions = keys_.Int("max_positions", {1, std::numeric_limits<int32_t>::max()});
    LAMINA_RETURN_IF_ERROR(keys_.status());
    for (const auto& [key, kind] : {std::pair("tokens", ExportedNode::Kind::kTokens),
                                    {"positions", ExportedNode::Kind::kPositions}}) {
      ExportedNode input;
      input.kind = kind;
      input.name = keys_.OptionalString(key).value_or(key);
      input.shape = {1, program_.rows};
      LAMINA_RETURN_IF_ERROR(Append(std::move(input)));
    }
    return keys_.status();
  }

  Status Append(ExportedNode node) {
    const auto index = static_cast<int32_t>(program_.nodes.size());
    if (!index_of_.emplace(node.name, index).second)
      return Wrong("there are two nodes " + node.name);
    program_.nodes.push_back(std::move(node));
    return OkStatus();
  }

  // A list of sizes whose product is in the range of sizes too. Nothing if `list` is anything else.
  static std::optional<std::vector<int64_t>> ReadShape(const json& list) {
    if (!list.is_array() || list.size() > kMaxDimensions) return std::nullopt;
    std::vector<int64_t> shape;
    int64_t elements = 1;
    for (const json& size : list) {
      if (!size.is_number_integer()) return std::nullopt;
      const auto value = size.get<int64_t>();
      if (value < kSizes.min || value > kSizes.max ||
          __builtin_mul_overflow(elements, value, &elements) || elements > kSizes.max) {
        return std::nullopt;
      }
      shape.push_back(value);
    }
    return shape;
  }

  Status ReadTensors(const char* key, ExportedNode::Kind kind) {
    const json* const tensors = keys_.Find(key);
    if (tensors == nullptr || !tensors->is_object())
      return Wrong(fmt::format("\"{}\" must be an object", key));
    for (const auto& [name, value] : tensors->items()) {
      ExportedNode node;
      node.kind = kind;
      node.name = name;
      std::optional<std::vector<int64_t>> shape =
          ReadShape(value.is_object() && value.contains("shape") ? value["shape"] : json());
      if (!shape)
        return Wrong(fmt::format("{} of \"{}\" has no \"shape\", a list of sizes", name, key));
      node.shape = std::move(*shape);
      LAMINA_RETURN_IF_ERROR(kind == ExportedNode::Kind::kWeight ? ReadWeight(value, node)
                                                                 : ReadConstant(value, node));
      LAMINA_RETURN_IF_ERROR(Append(std::move(node)));
    }
    return OkStatus();
  }

  Status ReadWeight(const json& value, ExportedNode& node) const {
    const auto tensor = value.find("tensor");
    if (tensor == value.end() || !tensor->is_string())
      return Wrong("weight " + node.name + " has no \"tensor\"");
    node.tensor = tensor->get<std::string>();
    return OkStatus();
  }

  Status ReadConstant(const json& value, ExportedNode& node) const {
    if (const auto data = value.find("data"); data != value.end() && data->is_array()) {
      for (const json& element : *data) {
        if (!element.is_number() && !element.is_boolean())
          return Wrong("constant " + node.name + " has elements that are no numbers");
        node.data.push_back(element.is_boolean() ? (element.get<bool>() ? 1 : 0)
                                                 : element.get<double>());
      }
      int64_t elements = 1;
      for (const int64_t size : node.shape) elements *= size;
      if (std::ssize(node.data) == elements) return OkStatus();
      return Wrong(fmt::format("constant {} has {} elements, its shape {}", node.name,
                               node.data.size(), elements));
    }
    const auto sees = value.find("sees");
    if (sees == value.end() || !sees->is_array())
      return Wrong("constant " + node.name + " has neither \"data\" nor \"sees\"");
    for (const json& range : *sees) {
      const std::optional<std::vector<int64_t>> ends = ReadShape(range);
      if (!ends || ends->size() != 2 || (*ends)[0] >= (*ends)[1] || (*ends)[1] > program_.rows) {
        return Wrong("mask " + node.name +
                     " must have [first, end) of the keys that each row sees");
      }
      node.sees.emplace_back((*ends)[0], (*ends)[1]);
    }
    if (std::ssize(node.sees) != program_.rows)
      return Wrong("mask " + node.name + " has not as many rows as the program");
    return OkStatus();
  }

  Status ReadOperator(const json& value) {
    if (!value.is_object()) return Wrong("a node that is no object");
    JsonKeys keys(value, program_.path + ": a node");
    ExportedNode node;
    node.name = keys.OptionalString("name").value_or("");
    node.op = keys.OptionalString("op").value_or("");
    node.module = keys.OptionalString("module").value_or("");
    node.source = keys.OptionalString("source").value_or("");
    LAMINA_RETURN_IF_ERROR(keys.status());
    if (node.name.empty() || node.op.empty()) return Wrong("a node without \"name\" or \"op\"");
    if (const json* const shape = keys.Find("shape"); shape != nullptr) {
      std::optional<std::vector<int64_t>> sizes = ReadShape(*shape);
      if (!sizes) return Wrong("node " + node.name + " has a \"shape\" that cannot be");
      node.shape = std::move(*sizes);
    }
    const json* const args = keys.Find("args");
    if (args == nullptr || !args->is_object())
      return Wrong("node " + node.name + " has no \"args\"");
    node.args = *args;
    for (json& argument : node.args) LAMINA_RETURN_IF_ERROR(Resolve(argument, node, 0));
    return Append(std::move(node));
  }

  // Replaces {"node": name} by {"node": index}, in lists too. Only nodes that stand before this one
  // are known by now, which makes cycles impossible.
  Status Resolve(json& argument, const ExportedNode& node, size_t depth) {
    if (depth > kMaxArgumentDepth)
      return Wrong("node " + node.name + " has arguments nested too deep");
    if (argument.is_array()) {
      for (json& item : argument) LAMINA_RETURN_IF_ERROR(Resolve(item, node, depth + 1));
    }
    if (!argument.is_object()) return OkStatus();
    const auto name = argument.find("node");
    if (name == argument.end() || !name->is_string())
      return Wrong("node " + node.name + " has an argument that is no node");
    const auto found = index_of_.find(name->get<std::string>());
    if (found == index_of_.end()) {
      return Wrong(fmt::format("node {} reads {}, which does not stand before it", node.name,
                               name->get<std::string>()));
    }
    argument = {{"node", found->second}};
    return OkStatus();
  }

  JsonKeys keys_;
  ExportedProgram program_;
  std::map<std::string, int32_t, std::less<>> index_of_;
};

}  // namespace

Result<ExportedProgram> ExportedProgram::Parse(const std::string& text, const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const json file, ParseJsonObject(text, path));
  return Reader(file, path).Read();
}

Result<ExportedProgram> ExportedProgram::Load(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  return Parse(text, path);
}

}  // namespace lamina
