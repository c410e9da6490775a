// LayerProfile::Predict: times of a layer's operators from those of other layers on the same kind
// of device.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "cost/layer_profile.h"

namespace lamina {
namespace {

// The weight of a measured matrix is 1 / (distance^2 + kNear), with its distance from the wanted
// one in (log inputs, log outputs). kSteepness is a ridge term that pulls the plane towards a
// constant, which matters only where all matrices lie on one line and leave the plane's tilt open.
constexpr double kNear = 0.02, kSteepness = 0.05;
constexpr size_t kFewestMatrices = 3;  // three points determine a plane

// A measured matrix, relative to the wanted one.
struct Neighbour {
  double inputs = 0, outputs = 0;  // logarithms of its size divided by the wanted size
  double slowness = 0;             // logarithm
};

// The logarithm of the slowness at the wanted size, which is the origin: the height there of a
// plane that is fitted by weighted least squares. Solves the normal equations by elimination.
// REQUIRES: `neighbours` is not empty.
double HeightAtOrigin(const std::vector<Neighbour>& neighbours) {
  // [ sums of x x^T | sum of x y ] with x = (inputs, outputs, 1).
  std::array<std::array<double, 4>, 3> rows{};
  double weights = 0;
  for (const Neighbour& n : neighbours) {
    const double weight = 1 / (n.inputs * n.inputs + n.outputs * n.outputs + kNear);
    const std::array<double, 4> x = {n.inputs, n.outputs, 1, n.slowness};
    for (size_t i = 0; i < 3; ++i) {
      for (size_t j = 0; j < 4; ++j) rows[i][j] += weight * x[i] * x[j];
    }
    weights += weight;
  }
  rows[0][0] += kSteepness * weights;
  rows[1][1] += kSteepness * weights;
  for (size_t pivot = 0; pivot < 2; ++pivot) {
    for (size_t i = pivot + 1; i < 3; ++i) {
      const double factor = rows[i][pivot] / rows[pivot][pivot];
      for (size_t j = pivot; j < 4; ++j) rows[i][j] -= factor * rows[pivot][j];
    }
  }
  // The third unknown is the plane's constant; the slopes are not needed.
  return rows[2][3] / rows[2][2];
}

struct Sample {
  double x = 0, y = 0;
};

// The value at `x` of the straight line that fits the samples best, without a negative slope, and
// never less than a third of the smallest sample. REQUIRES: `samples` is not empty.
double LineAt(const std::vector<Sample>& samples, double x) {
  double mean_x = 0, mean_y = 0, smallest = samples.front().y;
  for (const Sample& s : samples) {
    mean_x += s.x / static_cast<double>(samples.size());
    mean_y += s.y / static_cast<double>(samples.size());
    smallest = std::min(smallest, s.y);
  }
  double xx = 0, xy = 0;
  for (const Sample& s : samples) {
    xx += (s.x - mean_x) * (s.x - mean_x);
    xy += (s.x - mean_x) * (s.y - mean_y);
  }
  // If all samples are at the same x, y is taken to be proportional to it.
  const double slope = xx > 0 ? std::max(0.0, xy / xx) : mean_y / mean_x;
  return std::max(mean_y + slope * (x - mean_x), smallest / 3);
}

}  // namespace

std::vector<LayerProfile::Matrix> LayerProfile::MatricesOf(const Shape& shape, int workers) {
  const double width = shape.hidden_size, head = width / shape.num_heads, split = workers;
  // With more workers than kv heads each worker has a copy of one.
  const double heads = shape.num_heads / split,
               kv_heads = std::max(1.0, shape.num_kv_heads / split),
               mlp = shape.intermediate_size / split;
  return {{width, (heads + 2 * kv_heads) * head, &Operators::qkv},
          {heads * head, width, &Operators::output},
          {width, 2 * mlp, &Operators::up},
          {mlp, width, &Operators::down}};
}

std::vector<LayerProfile::Pointwise> LayerProfile::PointwiseOf(const Shape& shape, int workers) {
  const double width = shape.hidden_size, head = width / shape.num_heads, split = workers;
  const double heads = shape.num_heads / split,
               kv_heads = std::max(1.0, shape.num_kv_heads / split);
  return {{width, &Operators::first_norm},
          {width, &Operators::second_norm},
          {(heads + kv_heads) * head, &Operators::rotation},
          {shape.intermediate_size / split, &Operators::activation},
          {width, &Operators::add}};
}

Result<LayerProfile> LayerProfile::Predict(std::span<const LayerProfile* const> measured,
                                           const Shape& shape, int workers, double peak_flops_per_s,
                                           double bytes_per_s) {
  const auto ideal = [&](double rows, const Matrix& m) {
    constexpr double kElementBytes = 2;
    return 2 * rows * m.inputs * m.outputs / peak_flops_per_s +
           kElementBytes * (m.inputs * m.outputs + rows * (m.inputs + m.outputs)) / bytes_per_s;
  };
  struct Measured {
    std::vector<std::pair<Matrix, double>> matrices;  // with the logarithm of their slowness
    std::map<double Operators::*const*, std::vector<Sample>> pointwise;
  };
  // Samples of all profiles and numbers of workers, by the number of rows. Each number of rows is
  // predicted on its own.
  std::map<int, Measured> by_rows;
  for (const LayerProfile* profile : measured) {
    for (const auto& [split, times] : profile->by_workers_) {
      const std::vector<Matrix> matrices = MatricesOf(profile->shape_, split);
      const std::vector<Pointwise> pointwise = PointwiseOf(profile->shape_, split);
      for (const auto& [rows, operators] : times) {
        if (rows == 0) continue;
        Measured& here = by_rows[rows];
        for (const Matrix& m : matrices) {
          const double seconds = operators.*m.time;
          if (seconds > 0) here.matrices.emplace_back(m, std::log(seconds / ideal(rows, m)));
        }
        for (const Pointwise& p : pointwise) {
          const auto* key = std::find(std::begin(kAllOperators), std::end(kAllOperators), p.time);
          here.pointwise[key].push_back({p.width, operators.*p.time});
        }
      }
    }
  }
  LayerProfile profile;
  profile.shape_ = shape;
  profile.workers_ = workers;
  for (const auto& [rows, samples] : by_rows) {
    if (samples.matrices.size() < kFewestMatrices) continue;
    Operators times;
    for (const Matrix& wanted : MatricesOf(shape, workers)) {
      std::vector<Neighbour> neighbours;
      for (const auto& [m, slowness] : samples.matrices)
        neighbours.push_back(
            {std::log(m.inputs / wanted.inputs), std::log(m.outputs / wanted.outputs), slowness});
      times.*wanted.time = std::exp(HeightAtOrigin(neighbours)) * ideal(rows, wanted);
    }
    for (const Pointwise& wanted : PointwiseOf(shape, workers)) {
      const auto* key = std::find(std::begin(kAllOperators), std::end(kAllOperators), wanted.time);
      times.*wanted.time = LineAt(samples.pointwise.at(key), wanted.width);
    }
    profile.points_.push_back(PointOf(rows, times));
  }
  if (profile.points_.empty()) {
    return InvalidArgument("a layer cannot be predicted from " + std::to_string(measured.size()) +
                           " profiles: no number of rows was measured for " +
                           std::to_string(kFewestMatrices) + " matrices");
  }
  return profile;
}

}  // namespace lamina
