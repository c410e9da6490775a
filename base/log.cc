#include "base/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>

namespace lamina {

void InitLogging(const std::string& name) {
  auto logger = std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %n] %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  const char* level = std::getenv("LAMINA_LOG");
  spdlog::set_level(spdlog::level::from_str(level != nullptr ? level : "info"));
}

}  // namespace lamina
