#include "text/json_file.h"

#include "base/text_file.h"

namespace lamina {

Result<nlohmann::json> ReadJsonFile(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument(path + ": expected a JSON object");
  return json;
}

std::string SpecialTokenText(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_object()) return "";
  const auto content = value.find("content");
  return content != value.end() && content->is_string() ? content->get<std::string>() : "";
}

}  // namespace lamina
