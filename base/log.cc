#include "base/log.h"

#include <spdlog/cfg/helpers.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <memory>
#include <string_view>

namespace lamina {
namespace {

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// C1 control characters (U+0080 to U+009F), which some terminals obey too. In UTF-8 they are 0xc2
// and a byte from 0x80 to 0x9f.
bool IsControlOf8Bits(std::string_view rest) {
  return rest.size() > 1 && rest[0] == '\xc2' &&
         (static_cast<unsigned char>(rest[1]) & 0xe0) == 0x80;
}

// The message with its control characters escaped. Names and reasons in it may come from peers, who
// must not be able to end the line, begin another one, or send commands to a terminal.
class PrintableMessage final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm& /*time*/,
              spdlog::memory_buf_t& line) override {
    const std::string_view text(message.payload.data(), message.payload.size());
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '\n') {
        line.append(std::string_view("\\n"));
      } else if (IsControlOf8Bits(text.substr(i))) {
        fmt::format_to(std::back_inserter(line), "\\x{:02x}",
                       static_cast<unsigned char>(text[++i]));
      } else if (IsControl(c)) {
        fmt::format_to(std::back_inserter(line), "\\x{:02x}", static_cast<unsigned char>(c));
      } else {
        line.push_back(c);
      }
    }
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
