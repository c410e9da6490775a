#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

namespace lamina {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr std::array kSizeUnits = {
    Unit{"", 1},
    Unit{"B", 1},
    Unit{"k", 1e3},
    Unit{"kB", 1e3},
    Unit{"M", 1e6},
    Unit{"MB", 1e6},
    Unit{"G", 1e9},
    Unit{"GB", 1e9},
    Unit{"T", 1e12},
    Unit{"TB", 1e12},
    Unit{"KiB", 1024},
    Unit{"MiB", 1024.0 * 1024},
    Unit{"GiB", 1024.0 * 1024 * 1024},
    Unit{"TiB", 1024.0 * 1024 * 1024 * 1024},
};
constexpr std::array kDurationUnits = {
    Unit{"us", 1e-6}, Unit{"ms", 1e-3}, Unit{"s", 1}, Unit{"m", 60}, Unit{"h", 3600},
};
constexpr double kMaxSize = 9e18;  // below 2^63, about 9.22e18
// A year, far below the overflow of nanoseconds; anything longer is taken for a typing error.
constexpr double kMaxSeconds = 366.0 * 86400;

// Parses digits, an optional fraction and one of the units, and nothing else. Returns the value in
// the unit with factor 1.
std::optional<double> ParseWithUnit(std::string_view text, const auto& units) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const size_t number_end = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, number_end);
  std::string_view unit =
      number_end == std::string_view::npos ? std::string_view() : text.substr(number_end);
  if (unit.starts_with(' ')) unit.remove_prefix(1);  // "4 GiB"

  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value,
                                            std::chars_format::fixed);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  for (const Unit& known : units) {
    if (known.name == unit) return value * known.factor;
  }
  return std::nullopt;
}

}  // namespace

Result<int64_t> ParseSize(const std::string& text) {
  const std::optional<double> value = ParseWithUnit(text, kSizeUnits);
  if (!value)
    return InvalidArgument("'" + text +
                           "' is not a size: expected a number such as 512MiB, 4GiB, 32k or 1000");
  if (*value > kMaxSize) return InvalidArgument("'" + text + "' is too large for a size");
  return static_cast<int64_t>(std::llround(*value));
}

Result<Clock::duration> ParseDuration(const std::string& text) {
  const std::optional<double> seconds = ParseWithUnit(text, kDurationUnits);
  if (!seconds)
    return InvalidArgument("'" + text +
                           "' is not a duration: expected a number with a unit (us, ms, s, m, h) "
                           "such as 10s or 500ms");
  if (*seconds > kMaxSeconds) return InvalidArgument("'" + text + "' is longer than a year");
  return std::chrono::round<Clock::duration>(std::chrono::duration<double>(*seconds));
}

std::string FormatSize(int64_t bytes) {
  constexpr std::array<std::string_view, 5> kNames = {"", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  return std::to_string(bytes) + std::string(kNames[unit]);
}

std::string FormatGigabytes(int64_t bytes) {
  const int64_t tenths = (bytes + 50'000'000) / 100'000'000;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GB";
}

std::string FormatDuration(Clock::duration duration) {
  // Below a second in milliseconds, below a minute with a tenth of a second, above in seconds.
  const auto ms = std::chrono::round<milliseconds>(duration).count();
  if (ms < 1000) return std::to_string(ms) + "ms";
  if (ms % 1000 != 0 && ms < 60'000) {
    const auto tenths = (ms + 50) / 100;
    return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + "s";
  }
  const auto seconds = (ms + 500) / 1000;
  if (seconds < 60) return std::to_string(seconds) + "s";
  return std::to_string(seconds / 60) + "m" +
         (seconds % 60 == 0 ? "" : " " + std::to_string(seconds % 60) + "s");
}

}  // namespace lamina
