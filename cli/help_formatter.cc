#include "cli/help_formatter.h"

#include <algorithm>
#include <regex>

namespace lamina {
namespace {

class PlainFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    return PlainOptionText(CLI::Formatter::make_option_opts(option));
  }
};

}  // namespace

std::string PlainOptionText(std::string text) {
  static const std::regex range(R"((\w+):\1 in \[(\S+) - (\S+)\])");
  static const std::regex choices(R"(TEXT:\{([^}]*)\})");
  static const std::regex default_value(R"(=(\S+))");
  text = std::regex_replace(text, range, "$1 $2 to $3");
  for (const auto& [name, words] :
       {std::pair(":NONNEGATIVE", " 0 or more"), std::pair(":POSITIVE", " above 0")}) {
    const std::string from = name;
    if (const size_t at = text.find(from); at != std::string::npos)
      text.replace(at, from.size(), words);
  }
  if (std::smatch found; std::regex_search(text, found, choices)) {
    std::string words = found[1];
    std::ranges::replace(words, ',', '|');
    text.replace(static_cast<size_t>(found.position()), static_cast<size_t>(found.length()), words);
  }
  return std::regex_replace(text, default_value, " (default: $1)",
                            std::regex_constants::format_first_only);
}

std::shared_ptr<CLI::Formatter> HelpFormatter() { return std::make_shared<PlainFormatter>(); }

}  // namespace lamina
