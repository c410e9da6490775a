#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <sstream>

#include "base/units.h"
#include "cli/doctor/host_checks.h"

namespace lamina {
namespace {

// "model name : X" -> "X", if the line begins with `key`.
std::optional<std::string> ValueOfLine(const std::string& line, const std::string& key) {
  if (!line.starts_with(key)) return std::nullopt;
  const size_t colon = line.find(':');
  if (colon == std::string::npos) return std::nullopt;
  const size_t begin = line.find_first_not_of(" \t", colon + 1);
  return begin == std::string::npos ? "" : line.substr(begin);
}

struct CpuDescription {
  int num_cpus = 0;
  std::string name = "a CPU without a name";
  std::vector<std::string> flags;

  bool Has(const std::string& flag) const { return std::ranges::count(flags, flag) > 0; }
};

CpuDescription DescribeCpu(const HostView& host) {
  CpuDescription cpu;
  for (const std::string& line : host.Lines("/proc/cpuinfo")) {
    if (ValueOfLine(line, "processor")) ++cpu.num_cpus;
    if (const auto name = ValueOfLine(line, "model name")) cpu.name = *name;
    if (const auto flags = ValueOfLine(line, "flags"); flags && cpu.flags.empty()) {
      std::istringstream words(*flags);
      for (std::string word; words >> word;) cpu.flags.push_back(word);
    }
  }
  return cpu;
}

// Of a line "MemTotal:  24 kB"; 0: there is none.
int64_t MemoryInfo(const HostView& host, const std::string& key) {
  for (const std::string& line : host.Lines("/proc/meminfo")) {
    const std::optional<std::string> value = ValueOfLine(line, key + ":");
    int64_t kilobytes = 0;
    if (value) std::from_chars(value->data(), value->data() + value->size(), kilobytes);
    if (kilobytes > 0) return kilobytes * 1024;
  }
  return 0;
}

}  // namespace

// The same demands as those of CpuSupports (kernels/cpu_features.h).
std::vector<Finding> CheckCpu(const HostView& host) {
  const CpuDescription cpu = DescribeCpu(host);
  if (cpu.num_cpus == 0) return {};
  const bool avx2 = cpu.Has("avx2") && cpu.Has("fma") && cpu.Has("f16c");
  const bool avx512 = avx2 && cpu.Has("avx512f") && cpu.Has("avx512bw");
  return {{"cpu", "this host", avx2 ? Level::kOk : Level::kWarn,
           fmt::format("{} logical cores, {}; kernels {}", cpu.num_cpus, cpu.name,
                       avx512 ? "use AVX-512"
                       : avx2 ? "use AVX2"
                              : "find no AVX2 and are many times slower"),
           avx2 ? ""
                : "take a machine whose CPU has AVX2, FMA and F16C; in a virtual machine, let it "
                  "have the CPU of its host",
           cpu.num_cpus}};
}

std::vector<Finding> CheckMemory(const HostView& host, const HostNeeds& needs) {
  const int64_t all = MemoryInfo(host, "MemTotal"), available = MemoryInfo(host, "MemAvailable");
  if (all == 0) return {};
  Finding finding{
      "memory",
      "this host",
      Level::kOk,
      fmt::format("{} of {} are free", FormatGigabytes(available), FormatGigabytes(all)),
      "",
      available};
  if (needs.memory_bytes > 0)
    finding.cause += fmt::format(", the nodes here take {}", FormatGigabytes(needs.memory_bytes));
  if (needs.memory_bytes <= available) return {finding};
  finding.level = needs.memory_bytes > all ? Level::kFail : Level::kWarn;
  finding.fix =
      needs.memory_bytes > all
          ? "give memory nodes less `memory` in the cluster YAML, or put them elsewhere"
          : "right if the cluster is up already; else stop what takes the memory, or give "
            "memory nodes less";
  return {finding};
}

std::vector<Finding> CheckGpus(const HostView& host) {
  std::vector<std::string> names;
  const std::string gpus = "/proc/driver/nvidia/gpus";
  for (const std::string& gpu : host.Names(gpus)) {
    for (const std::string& line : host.Lines(gpus + "/" + gpu + "/information")) {
      if (const auto name = ValueOfLine(line, "Model")) names.push_back(*name);
    }
  }
  if (names.empty()) return {{"gpu", "this host", Level::kNone, "no NVIDIA GPU with a driver", ""}};
  return {{"gpu", "this host", Level::kOk, fmt::format("{}", fmt::join(names, ", ")), "",
           std::ssize(names)}};
}

std::vector<Finding> CheckDisk() {
  constexpr int64_t kLittle = 1'000'000'000;
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  if (error) return {};
  const auto available = static_cast<int64_t>(
      std::min<uintmax_t>(space.available, std::numeric_limits<int64_t>::max()));
  const bool little = available < kLittle;
  return {{"disk", folder.string(), little ? Level::kWarn : Level::kOk,
           FormatGigabytes(available) + " free for logs and temporary files",
           little ? "make room there, or set TMPDIR" : "", available}};
}

}  // namespace lamina
