#include "api/protocols/translation.h"

#include <cstdint>
#include <utility>

#include "api/template_input.h"

namespace lamina {

using nlohmann::json;
using nlohmann::ordered_json;

std::string At(const std::string& list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

std::string TypeOf(const json& object) {
  const json type = object.is_object() ? object.value("type", json()) : json();
  return type.is_string() ? type.get<std::string>() : "";
}

void MoveField(FieldReader& reader, ordered_json& body, const std::string& name, ordered_json& chat,
               const std::string& as) {
  if (reader.Find(name) != nullptr) chat[as] = std::move(body[name]);
}

void FailUnknown(FieldReader& reader, const std::string& where) {
  for (const std::string& field : reader.Unknown(SIZE_MAX)) {
    if (reader.Find(field) == nullptr) continue;  // null says nothing
    const std::string name = where + field.substr(0, 64);
    return reader.Fail(name, "'" + name + "' is not supported: it is not known here");
  }
}

void RefuseOther(FieldReader& reader, const std::string& name, const json& harmless,
                 const std::string& why) {
  const json* value = reader.Find(name);
  if (value != nullptr && *value != harmless)
    reader.Fail(name, "'" + name + "' is not supported except " + harmless.dump() + ": " + why);
}

std::optional<ApiError> ChooseReasoning(bool wanted, const std::string& field,
                                        const ServedModel& model, ordered_json& chat) {
  if (!model.reasoning) {
    if (!wanted) return std::nullopt;
    return ApiError{400, "'" + field + "' is not supported: this model does not reason", field};
  }
  const bool can_choose =
      model.chat_template != nullptr && model.chat_template->Names("enable_thinking");
  if (can_choose) {
    chat["chat_template_kwargs"]["enable_thinking"] = wanted;
  } else if (!wanted) {
    return ApiError{400,
                    "'" + field +
                        "' cannot be turned off: the chat template of this model always lets it "
                        "reason",
                    field};
  }
  return std::nullopt;
}

ordered_json ArgumentsObject(const std::string& arguments) {
  if (arguments.empty()) return ordered_json::object();
  std::optional<ordered_json> read = ParseOrdered(arguments);
  if (read && read->is_object()) return *std::move(read);
  return {{"INVALID_JSON", arguments}};
}

}  // namespace lamina
