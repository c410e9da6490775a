#include "base/cpu_list.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <sstream>

namespace lamina {
namespace {

// "3" or "0-3".
bool ParseRange(std::string_view text, std::vector<int>& cpus) {
  int first = 0, last = 0;
  const char* const end = text.data() + text.size();
  auto [stopped, error] = std::from_chars(text.data(), end, first);
  if (error != std::errc()) return false;
  last = first;
  if (stopped != end && *stopped == '-') {
    const auto [stopped_last, error_last] = std::from_chars(stopped + 1, end, last);
    if (error_last != std::errc()) return false;
    stopped = stopped_last;
  }
  if (stopped != end || first < 0 || last < first || last >= CPU_SETSIZE) return false;
  for (int cpu = first; cpu <= last; ++cpu) {
    if (std::ranges::find(cpus, cpu) != cpus.end()) return false;
    cpus.push_back(cpu);
  }
  return true;
}

}  // namespace

Result<std::vector<int>> ParseCpuList(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream parts(text);
  // getline does not show an empty part behind a last comma.
  bool ok = !text.empty() && text.back() != ',';
  for (std::string part; ok && std::getline(parts, part, ',');) ok = ParseRange(part, cpus);
  if (!ok)
    return InvalidArgument("'" + text + "' is no list of cores such as 0-3,8, each named once");
  return cpus;
}

Status RunOnCpus(const std::string& list, int num_threads) {
  LAMINA_ASSIGN_OR_RETURN(const std::vector<int> cpus, ParseCpuList(list));
  if (num_threads > std::ssize(cpus)) {
    return InvalidArgument(std::to_string(num_threads) + " threads on the " +
                           std::to_string(cpus.size()) + " cores of '" + list +
                           "': each gets a core of its own");
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    return InternalError("sched_getaffinity failed");
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int cpu : cpus) {
    if (!CPU_ISSET(cpu, &allowed)) {
      return NotFound("this process may not use core " + std::to_string(cpu) +
                      "; nproc --all and taskset -cp $$ say which it may");
    }
    CPU_SET(cpu, &wanted);
  }
  if (sched_setaffinity(0, sizeof(wanted), &wanted) != 0)
    return InternalError("sched_setaffinity failed");
  return OkStatus();
}

}  // namespace lamina
