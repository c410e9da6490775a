#include "cost/step_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

namespace lamina {
namespace {

constexpr const char* kHeader = "step,interval,rows,context,seconds";

std::string NameOf(const StepTime& time) {
  return fmt::format("{} step of {} rows, context {}, interval {}",
                     time.is_prefill ? "prefill" : "decode", time.rows, time.context,
                     time.interval);
}

// The line's measurement, or nullopt if it is malformed.
std::optional<StepTime> ParseLine(const std::string& line) {
  std::istringstream in(line);
  StepTime time;
  std::string kind;
  char comma = 0;
  if (!std::getline(in, kind, ',') || (kind != "prefill" && kind != "decode")) return {};
  time.is_prefill = kind == "prefill";
  in >> time.interval >> comma >> time.rows >> comma >> time.context >> comma >> time.seconds;
  if (!in || in.peek() != std::char_traits<char>::eof()) return {};
  const bool is_valid = time.interval >= 0 && time.rows >= 1 && time.context >= 0 &&
                        time.seconds > 0 && std::isfinite(time.seconds);
  return is_valid ? std::optional(time) : std::nullopt;
}

// Where `value` lies among `points`: between points[first] and points[first + 1], a share of the
// way from one to the other, which is more than 1 beyond the last.
struct Between {
  size_t first = 0;
  double share = 0;
};
Between Find(const std::vector<double>& points, double value) {
  if (points.size() == 1 || value <= points.front()) return {};
  const auto above = std::upper_bound(points.begin() + 1, points.end() - 1, value);
  const auto first = static_cast<size_t>(above - points.begin()) - 1;
  return {first, (value - points[first]) / (points[first + 1] - points[first])};
}

double At(const std::vector<double>& values, const Between& place) {
  const double here = values[place.first];
  return place.share == 0 ? here : here + place.share * (values[place.first + 1] - here);
}

}  // namespace

Result<StepProfile::Grids> StepProfile::GridsOf(std::span<const StepTime> times, bool is_prefill) {
  std::map<int, std::map<std::pair<double, double>, double>, ByOutside> found;
  std::map<int, std::pair<std::set<double>, std::set<double>>> axes;
  for (const StepTime& time : times) {
    if (time.is_prefill != is_prefill) continue;
    if (!found[time.interval].emplace(std::pair(time.rows, time.context), time.seconds).second)
      return InvalidArgument("there are two times of the " + NameOf(time));
    axes[time.interval].first.insert(time.rows);
    axes[time.interval].second.insert(time.context);
  }
  Grids grids;
  for (const auto& [interval, seconds] : found) {
    Grid& grid = grids[interval];
    std::ranges::copy(axes[interval].first, std::back_inserter(grid.rows));
    std::ranges::copy(axes[interval].second, std::back_inserter(grid.contexts));
    for (const double rows : grid.rows) {
      std::vector<double>& line = grid.seconds.emplace_back();
      for (const double context : grid.contexts) {
        const auto measured = seconds.find({rows, context});
        if (measured == seconds.end())
          return InvalidArgument("there is no time of the " +
                                 NameOf({is_prefill, interval, rows, context}));
        line.push_back(measured->second);
      }
    }
  }
  return grids;
}

Result<StepProfile> StepProfile::Of(std::span<const StepTime> times) {
  StepProfile profile;
  LAMINA_ASSIGN_OR_RETURN(profile.decode_, GridsOf(times, false));
  LAMINA_ASSIGN_OR_RETURN(profile.prefill_, GridsOf(times, true));
  if (profile.decode_.empty()) return InvalidArgument("there are no times of decode steps");
  for (const auto& [interval, grid] : profile.decode_) profile.intervals_.push_back(interval);
  return profile;
}

Result<StepProfile> StepProfile::Load(const std::string& path) {
  std::error_code ignored;  // a path that cannot be examined counts as absent
  if (!std::filesystem::is_regular_file(path, ignored))
    return NotFound("step profile " + path +
                    ": no such file; `lamina bench record CLUSTER.yaml` measures one");
  std::ifstream in(path);
  std::vector<StepTime> times;
  bool has_header = false;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line[0] == '#') continue;
    if (!has_header) {
      if (line != kHeader)
        return InvalidArgument(
            fmt::format("{}:{}: expected the columns {}", path, number, kHeader));
      has_header = true;
      continue;
    }
    const std::optional<StepTime> time = ParseLine(line);
    if (!time) {
      return InvalidArgument(fmt::format(
          "{}:{}: expected a measurement such as decode,4,16,256,0.0312: the kind of step (decode "
          "or prefill), the interval, at least 1 row, the context, and more than 0 seconds",
          path, number));
    }
    times.push_back(*time);
  }
  Result<StepProfile> profile = Of(times);
  if (!profile.ok()) return profile.status().WithContext(path);
  return profile;
}

std::string StepProfile::ToCsv(std::span<const StepTime> times) {
  std::string csv = std::string(kHeader) + "\n";
  for (const StepTime& time : times) {
    csv += fmt::format("{},{},{},{},{:.6g}\n", time.is_prefill ? "prefill" : "decode",
                       time.interval, time.rows, time.context, time.seconds);
  }
  return csv;
}

double StepProfile::Seconds(const Grids& grids, int interval, double rows, double context) {
  const auto above = grids.upper_bound(interval);
  const Grid& grid = std::prev(above)->second;
  const Between of_rows = Find(grid.rows, rows), of_context = Find(grid.contexts, context);
  std::vector<double> by_rows;
  for (const std::vector<double>& line : grid.seconds) by_rows.push_back(At(line, of_context));
  return At(by_rows, of_rows);
}

}  // namespace lamina
