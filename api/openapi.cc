#include "api/openapi.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/version.h"

namespace lamina {
namespace {

using nlohmann::ordered_json;

ordered_json BodyOf(const PathDescription& path) {
  ordered_json schema = {{"type", "object"}};
  std::istringstream names(path.required);
  for (std::string name; names >> name;) schema["required"].push_back(name);
  return {{"required", true}, {"content", {{"application/json", {{"schema", schema}}}}}};
}

ordered_json OperationOf(const PathDescription& path, bool names_model) {
  ordered_json operation = {{"summary", path.summary}};
  ordered_json& security = operation["security"] = ordered_json::array();
  if (!path.open) {
    for (const char* scheme : {"bearer", "key"})
      security.push_back({{scheme, ordered_json::array()}});
  }
  if (names_model)
    operation["parameters"].push_back(
        {{"name", "model"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  if (path.method == "POST") operation["requestBody"] = BodyOf(path);
  ordered_json& responses = operation["responses"];
  responses["200"] = {{"description", "the answer"}};
  responses["default"] = {{"description", "an error that says what was wrong"}};
  return operation;
}

}  // namespace

ordered_json OpenApiDocument(std::vector<PathDescription> paths) {
  std::ranges::sort(paths, {}, &PathDescription::path);
  ordered_json document = {
      {"openapi", "3.1.0"},
      {"info", {{"title", "lamina"}, {"version", std::string(kVersion)}}},
      {"components",
       {{"securitySchemes",
         {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
          {"key", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}}}}},
      {"paths", ordered_json::object()}};
  for (const PathDescription& path : paths) {
    const bool names_model = path.path.size() > 1 && path.path.ends_with('/');
    std::string method = path.method;
    std::ranges::transform(method, method.begin(),
                           [](char c) { return static_cast<char>(c - 'A' + 'a'); });
    document["paths"][path.path + (names_model ? "{model}" : "")][method] =
        OperationOf(path, names_model);
  }
  return document;
}

}  // namespace lamina
