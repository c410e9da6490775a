#include "cost/layer_profile.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string_view>

namespace lamina {
namespace {

std::vector<std::string> SplitAtCommas(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line);
  for (std::string cell; std::getline(in, cell, ',');) {
    if (!cell.empty() && cell.back() == '\r') cell.pop_back();
    cells.push_back(cell);
  }
  return cells;
}

// One line of the table. Remembers the first missing or malformed cell, so that a caller reads all
// cells and then checks wrong() once.
class CsvRow {
 public:
  CsvRow(const std::map<std::string, size_t>& columns, std::vector<std::string> cells)
      : columns_(columns), cells_(std::move(cells)) {}

  double Number(const std::string& column) {
    const size_t at = columns_.at(column);
    const std::string cell = at < cells_.size() ? cells_[at] : "";
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error == std::errc() && end == cell.data() + cell.size() && std::isfinite(value) &&
        value >= 0)
      return value;
    if (wrong_.empty()) wrong_ = "'" + column + "' is '" + cell + "': expected a number, 0 or more";
    return 0;
  }
  int Count(const std::string& column) {
    const double value = Number(column);
    if (value < 1 && wrong_.empty())
      wrong_ = "'" + column + "' is '" + cells_[columns_.at(column)] + "': expected 1 or more";
    return static_cast<int>(std::min(value, 1e9));  // within the range of int
  }

  const std::string& wrong() const { return wrong_; }

 private:
  const std::map<std::string, size_t>& columns_;
  const std::vector<std::string> cells_;
  std::string wrong_;
};

constexpr const char* kColumns[] = {"n_head",
                                    "n_kv_head",
                                    "n_embd",
                                    "n_expanded_embd",
                                    "num_tokens",
                                    "num_tensor_parallel_workers",
                                    "input_layernorm_ms",
                                    "attn_pre_proj_ms",
                                    "attn_rope_ms",
                                    "attn_post_proj_ms",
                                    "post_attention_layernorm_ms",
                                    "mlp_up_proj_ms",
                                    "mlp_act_ms",
                                    "mlp_down_proj_ms",
                                    "add_ms"};

}  // namespace

Result<LayerProfile> LayerProfile::Load(const std::string& path, int tensor_parallel) {
  std::error_code ignored;  // a path that cannot be examined counts as absent
  if (!std::filesystem::is_regular_file(path, ignored))
    return NotFound("profile " + path + ": no such file");
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  std::map<std::string, size_t> columns;
  for (const std::string& name : SplitAtCommas(line)) columns.emplace(name, columns.size());
  for (const char* column : kColumns) {
    if (!columns.contains(column))
      return InvalidArgument(path + ":1: there is no column '" + column + "'");
  }
  LayerProfile profile;
  profile.path_ = path;
  std::map<std::pair<int, int>, int> counts;  // number of lines, by workers and rows
  for (int number = 2; std::getline(in, line); ++number) {
    CsvRow row(columns, SplitAtCommas(line));
    const int workers = row.Count("num_tensor_parallel_workers"), rows = row.Count("num_tokens");
    const Shape shape{row.Count("n_head"), row.Count("n_kv_head"), row.Count("n_embd"),
                      row.Count("n_expanded_embd")};
    Operators times;
    times.qkv = row.Number("attn_pre_proj_ms") * 1e-3;
    times.output = row.Number("attn_post_proj_ms") * 1e-3;
    times.up = row.Number("mlp_up_proj_ms") * 1e-3;
    times.down = row.Number("mlp_down_proj_ms") * 1e-3;
    times.first_norm = row.Number("input_layernorm_ms") * 1e-3;
    times.second_norm = row.Number("post_attention_layernorm_ms") * 1e-3;
    times.rotation = row.Number("attn_rope_ms") * 1e-3;
    times.activation = row.Number("mlp_act_ms") * 1e-3;
    times.add = row.Number("add_ms") * 1e-3;
    std::string wrong = row.wrong();
    if (wrong.empty() && number > 2 && shape != profile.shape_)
      wrong = "the shape of the model differs from the line before";
    if (!wrong.empty()) return InvalidArgument(path + ":" + std::to_string(number) + ": " + wrong);
    profile.shape_ = shape;
    profile.by_workers_[workers][rows].AddToMean(times, ++counts[{workers, rows}]);
  }
  LAMINA_RETURN_IF_ERROR(profile.UseWorkers(tensor_parallel));
  return profile;
}

Status LayerProfile::UseWorkers(int workers) {
  const auto found = by_workers_.find(workers);
  if (found == by_workers_.end())
    return InvalidArgument(path_ + ": no row has " + std::to_string(workers) +
                           " tensor-parallel workers");
  workers_ = workers;
  points_.clear();
  for (const auto& [rows, times] : found->second) points_.push_back(PointOf(rows, times));
  return OkStatus();
}

Result<LayerProfile> LayerProfile::WithWorkers(int workers) const {
  LayerProfile profile = *this;
  LAMINA_RETURN_IF_ERROR(profile.UseWorkers(workers));
  return profile;
}

void LayerProfile::Operators::AddToMean(const Operators& other, int count) {
  for (double Operators::*time : kAllOperators) this->*time += (other.*time - this->*time) / count;
}

LayerProfile::Point LayerProfile::PointOf(int rows, const Operators& times) {
  return {
      static_cast<double>(rows), times.first_norm + times.qkv + times.rotation,
      times.output + times.second_norm + times.up + times.activation + times.down + 2 * times.add};
}

std::vector<double> LayerProfile::rows() const {
  std::vector<double> rows;
  for (const Point& point : points_) rows.push_back(point.rows);
  return rows;
}

double LayerProfile::Interpolate(double rows, double Point::*part) const {
  const Point& last = points_.back();
  if (rows >= last.rows) return last.*part * rows / last.rows;
  const auto high = std::lower_bound(points_.begin(), points_.end(), rows,
                                     [](const Point& point, double r) { return point.rows < r; });
  if (high == points_.begin()) return (*high).*part;
  const Point& low = *(high - 1);
  return low.*part + (rows - low.rows) / (high->rows - low.rows) * ((*high).*part - low.*part);
}

double LayerProfile::BeforeAttentionSeconds(double rows) const {
  return Interpolate(rows, &Point::before);
}
double LayerProfile::AfterAttentionSeconds(double rows) const {
  return Interpolate(rows, &Point::after);
}

}  // namespace lamina
