// Logging: one line per event on stderr, "TIME LEVEL PROCESS] MESSAGE". The message is made
// Printable (base/printable.h). Logging locks and formats, so nothing is logged on a hot path.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

namespace lamina {

// To be called once, from main. `name` is the PROCESS of every line, e.g. "memory_node m0". The
// level is that of the environment variable LAMINA_LOG (trace|debug|info|warn|error), by default
// info.
void InitLogging(const std::string& name);

}  // namespace lamina

#define LAMINA_LOG_DEBUG(...) ::spdlog::debug(__VA_ARGS__)
#define LAMINA_LOG_INFO(...) ::spdlog::info(__VA_ARGS__)
#define LAMINA_LOG_WARN(...) ::spdlog::warn(__VA_ARGS__)
#define LAMINA_LOG_ERROR(...) ::spdlog::error(__VA_ARGS__)
