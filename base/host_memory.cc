#include "base/host_memory.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/units.h"

namespace lamina {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// The files of a memory control group in one version of the kernel's interface.
struct GroupFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;  // a key of memory.stat
};
constexpr GroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_inactive_file"};
constexpr GroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

int64_t MachineBytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string line;
  while (std::getline(meminfo, line)) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lld kB", &kib) == 1) return kib * 1024;
  }
  return kNoLimit;
}

// kNoLimit if the file is not there or holds no number, such as "max".
int64_t NumberIn(const std::string& file) {
  int64_t number = 0;
  return std::ifstream(file) >> number ? number : kNoLimit;
}

int64_t StatisticIn(const std::string& file, const std::string& key) {
  std::ifstream statistics(file);
  std::string name;
  int64_t value = 0;
  while (statistics >> name >> value) {
    if (name == key) return value;
  }
  return 0;
}

int64_t LeftIn(const std::string& group, const GroupFiles& files) {
  const int64_t limit = NumberIn(group + "/" + files.limit);
  if (limit == kNoLimit) return kNoLimit;
  const int64_t used = NumberIn(group + "/" + files.used);
  if (used == kNoLimit) return limit;
  const int64_t reclaimable = StatisticIn(group + "/memory.stat", files.reclaimable);
  return std::max<int64_t>(limit - std::max<int64_t>(used - reclaimable, 0), 0);
}

}  // namespace

int64_t AvailableHostBytes() {
  std::ostringstream memberships;
  memberships << std::ifstream("/proc/self/cgroup").rdbuf();
  return std::min(MachineBytes(), AvailableGroupBytes("/sys/fs/cgroup", memberships.str()));
}

// A line is "ID:CONTROLLERS:PATH"; version 2 has one line, "0::PATH". In a container the path may
// be that of the host, of which only the end or nothing is mounted: groups that are not there are
// passed over.
int64_t AvailableGroupBytes(const std::string& mount, const std::string& memberships) {
  int64_t left = kNoLimit;
  std::istringstream lines(memberships);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool is_version_2 = line.starts_with("0::");
    if (!is_version_2 && controllers.find(",memory,") == std::string::npos) continue;
    const std::string root = is_version_2 ? mount : mount + "/memory";
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      left = std::min(left, LeftIn(root + path, is_version_2 ? kVersion2 : kVersion1));
      if (path.find('/') == std::string::npos) break;
    }
  }
  return left;
}

Status CheckHostMemory(int64_t bytes, const std::string& what) {
  const int64_t available = AvailableHostBytes();
  if (bytes <= available) return OkStatus();
  return OutOfSpace(what + " need " + FormatGigabytes(bytes) +
                    " of this host's memory, which has " + FormatGigabytes(available) +
                    " available");
}

int64_t SaturatedProduct(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

}  // namespace lamina
