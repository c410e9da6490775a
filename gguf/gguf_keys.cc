#include "gguf/gguf_keys.h"

#include <string>

namespace lamina {
namespace {

using nlohmann::json;

json ElementOf(const GgufValue& value, uint64_t i) {
  if (value.type == GgufType::kBool) return std::to_integer<int>(value.bytes[i]) != 0;
  if (value.is_integer()) return value.Integer(i);
  return value.Real(i);
}

}  // namespace

json GgufKeys(const GgufModel& file) {
  json keys = json::object();
  for (const auto& [name, value] : file.header().values) {
    if (value.type == GgufType::kString) {
      if (!value.is_array) keys[std::string(name)] = std::string(value.Strings().front());
    } else if (!value.is_array) {
      keys[std::string(name)] = ElementOf(value, 0);
    } else if (value.count <= kMaxShownArray) {
      json list = json::array();
      for (uint64_t i = 0; i < value.count; ++i) list.push_back(ElementOf(value, i));
      keys[std::string(name)] = std::move(list);
    }
  }
  return keys;
}

}  // namespace lamina
