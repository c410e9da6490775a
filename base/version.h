// The version that GET /version returns. CMakeLists.txt has the same number.
#pragma once

#include <string_view>

namespace lamina {

inline constexpr std::string_view kVersion = "0.1.0";

}  // namespace lamina
