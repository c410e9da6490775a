#include "base/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "base/printable.h"

namespace lamina {
namespace {

// The message, made Printable. Names and reasons in it may come from peers, who must not be able to
// end the line, begin another one, or send commands to a terminal.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& line) override {
    line.append(Printable({message.payload.data(), message.payload.size()}));
  }

  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PrintableMessage>();
  }
};

}  // namespace

void InitLogging(const std::string& name) {
  auto logger = std::make_shared<spdlog::logger>(
      name, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<PrintableMessage>('*').set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %n] %*");
  logger->set_formatter(std::move(formatter));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  const char* level = std::getenv("LAMINA_LOG");
  spdlog::set_level(spdlog::level::from_str(level != nullptr ? level : "info"));
}

}  // namespace lamina
