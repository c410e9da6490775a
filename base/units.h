// Sizes and durations as people write them in YAML files and on command lines.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// "512MiB", "4GiB", "32k", "1.5GiB" or a plain number. k, M, G, T (also kB, MB, GB, TB): powers of
// 1000; KiB, MiB, GiB, TiB: of 1024. kInvalidArgument says what was read and what is expected.
Result<int64_t> ParseSize(const std::string& text);

// "10s", "500ms", "250us", "2m", "1h", "1.5s". A unit is required: a bare number is the kind of
// thing that means seconds to one person and milliseconds to the next.
Result<Clock::duration> ParseDuration(const std::string& text);

// The shortest exact form that ParseSize reads back: 268435456 is "256MiB", 1000 is "1000".
std::string FormatSize(int64_t bytes);

// For people, in powers of 1000: "40.0 GB".
std::string FormatGigabytes(int64_t bytes);

// For people: "250ms", "10s", "2m 5s".
std::string FormatDuration(Clock::duration duration);

}  // namespace lamina
