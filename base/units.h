// Sizes and durations as people write them in YAML files and on command lines.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// Parses a size such as "512MiB", "1.5GiB", "32k" or "1000". The units k, M, G, T (also kB, MB, GB,
// TB) are powers of 1000, and KiB, MiB, GiB, TiB are powers of 1024. kInvalidArgument says what was
// read and what is expected.
Result<int64_t> ParseSize(const std::string& text);

// Parses a duration such as "10s", "500ms", "250us", "2m", "1h" or "1.5s". The unit is required,
// because a bare number means seconds to one person and milliseconds to another. kInvalidArgument
// if it is no duration, or longer than a year.
Result<Clock::duration> ParseDuration(const std::string& text);

// An exact form that ParseSize reads back, with the largest possible power of 1024 as its unit:
// 268435456 is "256MiB", 1000 is "1000".
std::string FormatSize(int64_t bytes);

// For people, in units of 10^9 bytes: "40.0 GB".
std::string FormatGigabytes(int64_t bytes);

// For people, rounded: "250ms", "1.5s", "10s", "2m 5s".
std::string FormatDuration(Clock::duration duration);

}  // namespace lamina
