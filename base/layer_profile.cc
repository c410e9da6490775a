#include "base/layer_profile.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
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

// One line of the table. The first missing or malformed cell is remembered.
class CsvRow {
 public:
  CsvRow(const std::map<std::string, size_t>& columns, std::vector<std::string> cells) : columns_(columns), cells_(std::move(cells)) {}

  double Number(const std::string& column) {
    const size_t at = columns_.at(column);
    const std::string cell = at < cells_.size() ? cells_[at] : "";
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error == std::errc() && end == cell.data() + cell.size() && std::isfinite(value) && value >= 0) return value;
    if (wrong_.empty()) wrong_ = "'" + column + "' is '" + cell + "': expected a number, 0 or more";
    return 0;
  }
  int Int(const std::string& column) { return static_cast<int>(std::min(Number(column), 1e9)); }

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

// Sums over the rows with as many tokens.
struct Measured {
  int count = 0;
  double before_ms = 0, after_ms = 0;
};

}  // namespace

Result<LayerProfile> LayerProfile::Load(const std::string& path, int tensor_parallel) {
  std::error_code ignored;  // cannot be looked at: as good as absent
  if (!std::filesystem::is_regular_file(path, ignored)) return NotFound("profile " + path + ": no such file");
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  std::map<std::string, size_t> columns;
  for (const std::string& name : SplitAtCommas(line)) columns.emplace(name, columns.size());
  for (const char* column : kColumns) {
    if (!columns.contains(column)) return InvalidArgument(path + ":1: there is no column '" + column + "'");
  }
  LayerProfile profile;
  std::map<int, Measured> measured;  // by tokens
  for (int number = 2; std::getline(in, line); ++number) {
    CsvRow row(columns, SplitAtCommas(line));
    const bool counts = row.Int("num_tensor_parallel_workers") == tensor_parallel;
    const Shape shape{row.Int("n_head"), row.Int("n_kv_head"), row.Int("n_embd"), row.Int("n_expanded_embd")};
    Measured& sums = measured[counts ? row.Int("num_tokens") : 0];
    sums.count += 1;
    sums.before_ms += row.Number("input_layernorm_ms") + row.Number("attn_pre_proj_ms") + row.Number("attn_rope_ms");
    sums.after_ms += row.Number("attn_post_proj_ms") + row.Number("post_attention_layernorm_ms") + row.Number("mlp_up_proj_ms") +
                     row.Number("mlp_act_ms") + row.Number("mlp_down_proj_ms") + 2 * row.Number("add_ms");
    std::string wrong = row.wrong();
    if (wrong.empty() && number > 2 && shape != profile.shape_) wrong = "the shape of the model differs from the line before";
    if (!wrong.empty()) return InvalidArgument(path + ":" + std::to_string(number) + ": " + wrong);
    profile.shape_ = shape;
  }
  measured.erase(0);  // other numbers of workers
  if (measured.empty()) return InvalidArgument(path + ": no row has " + std::to_string(tensor_parallel) + " tensor-parallel workers");
  for (const auto& [tokens, sums] : measured)
    profile.points_.push_back({static_cast<double>(tokens), sums.before_ms / sums.count * 1e-3, sums.after_ms / sums.count * 1e-3});
  return profile;
}

double LayerProfile::Interpolate(double rows, double Point::*part) const {
  const Point& last = points_.back();
  if (rows >= last.rows) return last.*part * rows / last.rows;
  const auto high = std::lower_bound(points_.begin(), points_.end(), rows, [](const Point& point, double r) { return point.rows < r; });
  if (high == points_.begin()) return (*high).*part;
  const Point& low = *(high - 1);
  return low.*part + (rows - low.rows) / (high->rows - low.rows) * ((*high).*part - low.*part);
}

double LayerProfile::BeforeAttentionSeconds(double rows) const { return Interpolate(rows, &Point::before); }
double LayerProfile::AfterAttentionSeconds(double rows) const { return Interpolate(rows, &Point::after); }

}  // namespace lamina
