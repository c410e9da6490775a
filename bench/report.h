// One line per measured case, for machines (--json) or people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lamina {

struct Measurement {
  std::string name;
  nlohmann::json sizes;  // the case
  double value = 0;      // median
  std::string unit;
  double p99 = 0;
  std::string p99_of;  // what p99 is the percentile of, with its unit
  // The limit or peer measured in the same run; "": none, and `note` says why.
  std::string reference;
  double reference_value = 0;
  double ratio = 0;        // ours over the reference's; 1 is par, more is better
  std::string note;        // "" unless there is something to know
  nlohmann::json details;  // parts of the value, or what else was counted; null: none
};

// {"name","case","value","unit","p99","p99_of","reference","reference_value","ratio","host","commit"},
// with "note" and "details" if there are any; the three of the reference are null if there is none.
std::string ToJsonLine(const Measurement& measurement);
std::string ToText(const Measurement& measurement);

// "NAME OF THE CPU, 8 threads".
std::string MachineName();

}  // namespace lamina
