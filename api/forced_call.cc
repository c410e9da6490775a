#include "api/forced_call.h"

#include <utility>

namespace lamina {
namespace {

using nlohmann::ordered_json;

constexpr const char* kDefinitionKeys[] = {"$defs", "definitions"};

// What the arguments of a tool have to be. Its definitions move to `root`, where references in it
// look for them.
std::optional<ApiError> TakeParameters(const ordered_json& tool, ordered_json& root,
                                       ordered_json& parameters) {
  parameters = tool["function"].value("parameters", ordered_json::object());
  if (!parameters.is_object()) parameters = ordered_json::object();
  if (!parameters.contains("type")) parameters["type"] = "object";
  for (const char* key : kDefinitionKeys) {
    const auto definitions = parameters.find(key);
    if (definitions == parameters.end()) continue;
    for (const auto& [name, definition] : definitions->items()) {
      ordered_json& place = root[key][name];
      if (!place.is_null() && place != definition)
        return ApiError{400,
                        "two tools have different definitions of '" + name +
                            "', which 'tool_choice' cannot have together",
                        "tools"};
      place = definition;
    }
    parameters.erase(key);
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> ForceCall(ChatRequest& request) {
  if (request.forced == ForcedCall::kNo) return std::nullopt;
  GenerationOptions& options = request.options;
  const char* other = options.constraint    ? options.constraint->field.c_str()
                      : options.ignore_eos  ? "ignore_eos"
                      : options.beam_search ? "use_beam_search"
                                            : nullptr;
  if (other != nullptr)
    return ApiError{400,
                    std::string("'tool_choice' cannot demand a call together with '") + other + "'",
                    "tool_choice"};
  ordered_json root = ordered_json::object();
  ordered_json calls = ordered_json::array();
  for (const ordered_json& tool : request.input.tools) {
    const std::string name = tool["function"]["name"];
    if (request.forced == ForcedCall::kNamed && name != request.forced_name) continue;
    ordered_json parameters;
    if (auto error = TakeParameters(tool, root, parameters)) return error;
    if (request.forced == ForcedCall::kNamed) {
      parameters.update(root);
      root = std::move(parameters);
      break;
    }
    calls.push_back({{"type", "object"},
                     {"properties", {{"name", {{"const", name}}}, {"parameters", parameters}}},
                     {"required", {"name", "parameters"}},
                     {"additionalProperties", false}});
  }
  if (request.forced == ForcedCall::kList) {
    root["type"] = "array";
    root["items"] = {{"anyOf", calls}};
    root["minItems"] = 1;
    if (!request.parallel_tool_calls) root["maxItems"] = 1;
  }
  options.constraint = RequestedConstraint{
      "tool_choice", {.kind = ConstraintKind::kJsonSchema, .schema = std::move(root)}};
  return std::nullopt;
}

}  // namespace lamina
