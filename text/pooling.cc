#include "text/pooling.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/text_file.h"
#include "gguf/gguf_model.h"
#include "text/json_file.h"

namespace lamina {
namespace {

using nlohmann::json;

Status OtherPooling(const std::string& file, const std::string& what) {
  return Unimplemented(file + ": the model's vectors are made by " + what +
                       ", and lamina computes those of last tokens");
}

// Of a pooling module: {"pooling_mode_mean_tokens": true, ...}, or "pooling_mode": "mean".
Status CheckMode(const std::string& folder, const std::string& file) {
  const Result<json> read = ReadJsonFile(folder + "/" + file);
  if (read.status().code() == StatusCode::kNotFound)
    return NotFound("modules.json names " + file +
                    ", which is not there: how vectors of texts are made is not known; pull the "
                    "model again");
  LAMINA_ASSIGN_OR_RETURN(const json config, read);
  constexpr std::string_view kFlag = "pooling_mode_";
  for (const auto& [key, value] : config.items()) {
    if (key == "pooling_mode" && value != "lasttoken")
      return OtherPooling(file, "pooling_mode " + value.dump());
    if (key.starts_with(kFlag) && key != "pooling_mode_lasttoken" && value == true)
      return OtherPooling(file, key);
  }
  return OkStatus();
}

Status CheckModules(const std::string& folder) {
  const std::string path = folder + "/modules.json";
  const Result<std::string> text = ReadTextFile(path);
  if (text.status().code() == StatusCode::kNotFound) return OkStatus();
  LAMINA_RETURN_IF_ERROR(text.status());
  const json modules = json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!modules.is_array()) return InvalidArgument(path + ": not a JSON list of modules");
  for (const json& module : modules) {
    const json type = module.is_object() ? module.value("type", json()) : json();
    const json inner = module.is_object() ? module.value("path", json()) : json();
    if (!type.is_string() || !inner.is_string())
      return InvalidArgument(path + ": a module without 'type' or 'path'");
    const auto is = [&](std::string_view name) {
      return type.get_ref<const std::string&>().ends_with(name);
    };
    if (is(".Pooling")) {
      LAMINA_RETURN_IF_ERROR(CheckMode(folder, inner.get<std::string>() + "/config.json"));
    } else if (!is(".Transformer") && !is(".Normalize")) {
      return OtherPooling("modules.json", "a module of type " + type.dump());
    }
  }
  return OkStatus();
}

Status CheckGguf(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<GgufModel> file, GgufModel::Open(path));
  const auto is_text = [](const GgufValue* value) {
    return value != nullptr && value->type == GgufType::kString && !value->is_array;
  };
  const GgufValue* const architecture = file->Value("general.architecture");
  if (!is_text(architecture)) return OkStatus();  // whoever loads the model says so
  const std::string key = std::string(architecture->Strings().front()) + ".pooling_type";
  const GgufValue* const value = file->Value(key);
  if (value == nullptr) return OkStatus();
  constexpr std::array kTypes = {"none", "the mean of all tokens", "the first token",
                                 "the last token", "a ranking layer"};
  constexpr int64_t kNone = 0, kLast = 3;
  const int64_t type = !value->is_array && value->is_integer() ? value->Integer() : -1;
  if (type == kNone || type == kLast) return OkStatus();
  const bool is_known = type >= 0 && type < std::ssize(kTypes);
  return OtherPooling("the GGUF file",
                      key + " " + std::to_string(type) +
                          (is_known ? std::string(", ") + kTypes[static_cast<size_t>(type)] : ""));
}

}  // namespace

Status CheckPooling(const std::string& model_path) {
  return IsGgufPath(model_path) ? CheckGguf(model_path) : CheckModules(model_path);
}

}  // namespace lamina
