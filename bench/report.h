// Prints one measured case, as a line of JSON for machines (--json) or for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lamina {

// A case and what was measured. Only name, sizes, value and unit are always there.
struct Measurement {
  std::string name;
  // What tells this case from others of the same name.
  nlohmann::json sizes;
  double value = 0;  // median
  std::string unit;
  double p99 = 0;
  // What p99 is the percentile of, with its unit.
  std::string p99_of;
  // The limit or the peer that was measured in the same run. "": there is none, and `note` says
  // why.
  std::string reference;
  double reference_value = 0;
  // Ours over the reference's; for times the reference's over ours. 1 is par, more is better.
  double ratio = 0;
  std::string note;  // "" unless there is something to know
  // Parts of the value, or what else was counted. null: none.
  nlohmann::json details;
};

// {"name", "case", "value", "unit", "p99", "p99_of", "reference", "reference_value", "ratio",
// "host", "commit"}, with "note" and "details" if there are any. The three of the reference are
// null if there is none.
std::string ToJsonLine(const Measurement& measurement);
std::string ToText(const Measurement& measurement);

// "NAME OF THE CPU, 8 threads".
std::string MachineName();

}  // namespace lamina
