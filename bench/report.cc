#include "bench/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "base/json_text.h"
#include "bench/commit.h"  // generated

namespace lamina {
namespace {

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown CPU";
}

}  // namespace

std::string MachineName() {
  return fmt::format("{}, {} threads", CpuName(), std::thread::hardware_concurrency());
}

std::string ToJsonLine(const Measurement& m) {
  nlohmann::ordered_json line = {{"name", m.name},
                                 {"case", m.sizes},
                                 {"value", m.value},
                                 {"unit", m.unit},
                                 {"p99", m.p99},
                                 {"p99_of", m.p99_of},
                                 {"reference", m.reference},
                                 {"reference_value", m.reference_value},
                                 {"ratio", m.ratio},
                                 {"host", MachineName()},
                                 {"commit", kCommit}};
  // A case without a reference must not look like one at par.
  if (m.reference.empty()) line["reference"] = line["reference_value"] = line["ratio"] = nullptr;
  if (!m.note.empty()) line["note"] = m.note;
  if (!m.details.is_null()) line["details"] = m.details;
  return JsonText(line);
}

std::string ToText(const Measurement& m) {
  std::string sizes;
  for (const auto& [key, value] : m.sizes.items())
    sizes += fmt::format(" {}={}", key, value.dump());
  const std::string held_against =
      m.reference.empty() ? ""
                          : fmt::format("  ({:.1f} {}: {})\n  ratio {:.3f}", m.reference_value,
                                        m.unit, m.reference, m.ratio);
  return fmt::format("{}{}\n  {:.1f} {}{}; p99 {:.2f} {}{}{}", m.name, sizes, m.value, m.unit,
                     held_against, m.p99, m.p99_of, m.note.empty() ? "" : "\n  ", m.note);
}

}  // namespace lamina
