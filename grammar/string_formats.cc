#include "grammar/string_formats.h"

#include <map>

namespace lamina {
namespace {

// Years 0001 to 9999. The 29th of February is in years that 4 divides, but not 100, or 400 does.
const std::string kYear = "(000[1-9]|00[1-9]\\d|0[1-9]\\d\\d|[1-9]\\d{3})";
const std::string kLeapYear =
    "(\\d\\d(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)";
const std::string kDate =
    "(" + kYear +
    "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
    "02-(0[1-9]|1\\d|2[0-8]))|" +
    kLeapYear + "-02-29)";
// RFC 3339. Python's datetime has microseconds.
const std::string kTime =
    "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)";
const std::string kByte = "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])";
const std::string kHostname =
    "[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?(\\.[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?)"
    "{0,6}";
const std::string kMailboxAtom = "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,20}";

const std::map<std::string, std::string, std::less<>>& Patterns() {
  static const std::map<std::string, std::string, std::less<>> patterns = {
      {"date", kDate},
      {"time", kTime},
      {"date-time", kDate + "T" + kTime},
      {"duration",
       "P(\\d+W|(\\d+Y(\\d+M(\\d+D)?)?|\\d+M(\\d+D)?|\\d+D)(T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|"
       "\\d+S))?|T(\\d+H(\\d+M(\\d+S)?)?|\\d+M(\\d+S)?|\\d+S))"},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
      {"ipv4", kByte + "(\\." + kByte + "){3}"},
      {"hostname", kHostname},
      {"email", kMailboxAtom + "(\\." + kMailboxAtom + "){0,2}@" + kHostname}};
  return patterns;
}

}  // namespace

std::optional<std::string> PatternOfFormat(std::string_view format) {
  const auto found = Patterns().find(format);
  if (found == Patterns().end()) return std::nullopt;
  return found->second;
}

std::string SupportedFormats() {
  std::string names;
  for (const auto& [name, pattern] : Patterns())
    names += (names.empty() ? "'" : ", '") + name + "'";
  return names;
}

}  // namespace lamina
