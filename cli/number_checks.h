// Checks of numbers on command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>

namespace lamina {

// A finite number from `low` to `high`. CLI11's own checks let NaN through, as it is neither above
// nor below anything.
CLI::Validator NumberIn(double low, double high);
CLI::Validator NumberAtLeast(double low);

// A finite number above 0.
CLI::Validator AboveZero();

// Turns a size with a unit, such as 32k, as ParseSize of base/units.h reads it, into the number
// that other checks and the option's value are made for. What is no size is left to them.
CLI::Validator SizeAsNumber();

// A whole number of things that are held in memory, from 0 to `most`.
CLI::Validator CountThatFits(int64_t most);

// 0, which says that bytes take no time, or 10^9 bytes per second of a network that a message gets
// through.
CLI::Validator ModelledGbPerSecond();

}  // namespace lamina
