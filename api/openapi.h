// The description of the API that tools read: https://spec.openapis.org/oas/v3.1.0.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lamina {

struct PathDescription {
  std::string path;  // one that ends with '/' is followed by a model's name, but for "/" itself
  std::string method;
  std::string summary;
  std::string required;  // fields of the body that have to be there, with spaces between
  bool open = false;     // without the API key
};

// Paths in the order of their names.
nlohmann::ordered_json OpenApiDocument(std::vector<PathDescription> paths);

}  // namespace lamina
