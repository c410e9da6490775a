#include "cli/number_checks.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "base/units.h"

namespace lamina {
namespace {

constexpr double kSlowestGbPerSecond = 1e-3, kFastestGbPerSecond = 1e6;

std::optional<double> FiniteNumber(const std::string& text) {
  const char *begin = text.data(), *end = begin + text.size();
  if (begin != end && *begin == '+') ++begin;
  double value = 0;
  const auto [stopped, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || stopped != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

template <typename Accepts>
CLI::Validator Expect(const std::string& expected, Accepts accepts) {
  const auto check = [expected, accepts](const std::string& text) {
    const std::optional<double> value = FiniteNumber(text);
    return value && accepts(*value) ? std::string() : "'" + text + "' is not " + expected;
  };
  return {check, "", ""};
}

}  // namespace

CLI::Validator NumberIn(double low, double high) {
  return Expect(fmt::format("a number from {:g} to {:g}", low, high),
                [=](double value) { return value >= low && value <= high; });
}

CLI::Validator NumberAtLeast(double low) {
  return Expect(fmt::format("a number of {:g} or more", low),
                [=](double value) { return value >= low; });
}

CLI::Validator AboveZero() {
  return Expect("a number above 0", [](double value) { return value > 0; });
}

CLI::Validator SizeAsNumber() {
  const auto read = [](std::string& text) -> std::string {
    const bool has_unit = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back()));
    const Result<int64_t> size =
        has_unit ? ParseSize(text) : Result<int64_t>(InvalidArgument("no unit"));
    if (size.ok()) text = std::to_string(*size);
    return "";
  };
  return {read, "", ""};
}

CLI::Validator CountThatFits(int64_t most) {
  return Expect(fmt::format("a number from 0 to {}; more do not fit into memory", most),
                [=](double value) { return value >= 0 && value <= static_cast<double>(most); });
}

CLI::Validator ModelledGbPerSecond() {
  return Expect(
      fmt::format("0 or a number from {:g} to {:g}", kSlowestGbPerSecond, kFastestGbPerSecond),
      [](double value) {
        return value == 0 || (value >= kSlowestGbPerSecond && value <= kFastestGbPerSecond);
      });
}

}  // namespace lamina
