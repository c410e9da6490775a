// Logging: a line per event to stderr, "time level process-name] message", which is made Printable
// (printable.h). Never on a hot path.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace lamina {

// Call once from main. `name` stands in every line, e.g. "memory_node m0". Level from LAMINA_LOG
// (trace|debug|info|warn|error), else info.
void InitLogging(const std::string& name);

}  // namespace lamina

#define LAMINA_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LAMINA_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LAMINA_LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define LAMINA_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
