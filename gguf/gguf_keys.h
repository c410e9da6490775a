// The keys of a GGUF file as JSON, so that they are read as those of config.json are
// (base/json_keys.h).
#pragma once

#include <nlohmann/json.hpp>

#include "gguf/gguf_model.h"

namespace lamina {

// All values by key, and arrays of numbers with at most `kMaxShownArray` elements. Vocabularies are
// left out.
inline constexpr uint64_t kMaxShownArray = 4096;
nlohmann::json GgufKeys(const GgufModel& file);

}  // namespace lamina
