#include "frontend/text/json_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace lamina {

Result<std::string> ReadTextFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return NotFound(path + ": no such file");
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf()) || !file) return InvalidArgument(path + ": cannot be read (is it an empty file or a folder, or is reading not permitted?)");
  return std::move(text).str();
}

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
