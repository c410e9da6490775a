#include "bench/kernels/kernel_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/clock.h"
#include "bench/kernels/kernel_limits.h"
#include "bench/kernels/linear_sample.h"
#include "bench/kernels/machine_memory.h"
#include "bench/kernels/random_values.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

// A prime, so that rows begin at different weights and outputs differ.
constexpr int64_t kRandomWeights = 65521;

size_t NumCopies(int64_t copies_bytes, int64_t bytes) {
  return static_cast<size_t>(std::max<int64_t>(1, (copies_bytes + bytes - 1) / bytes));
}

}  // namespace

Status LinearBench::CheckFits(int64_t out_features, int64_t in_features, int64_t rows,
                              bool has_blas) {
  const auto out = static_cast<double>(out_features), in = static_cast<double>(in_features);
  // Weights in order (bf16), packed (bf16), and for OpenBLAS (fp32).
  const double weights = out * in * (has_blas ? 2 + 2 + 4 : 2 + 2);
  return lamina::CheckFits(
      weights + static_cast<double>(rows) * (in + 2 * out) * sizeof(float),
      fmt::format("weights of {}x{} and {} rows", out_features, in_features, rows));
}

LinearBench::LinearBench(int64_t out_features, int64_t in_features, int64_t copies_bytes,
                         const OpenBlas* blas, WorkerTeam& team)
    : out_features_(out_features), in_features_(in_features), blas_(blas) {
  std::vector<uint16_t> some;
  for (const float w : RandomValues(static_cast<size_t>(kRandomWeights), 9))
    some.push_back(ToBF16(w).bits);
  const int64_t n = out_features * in_features;
  source_.resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    source_[static_cast<size_t>(i)] = some[static_cast<size_t>(i % kRandomWeights)];
  for (size_t i = NumCopies(copies_bytes, n * 2); i > 0; --i) {
    copies_.emplace_back(source_.data(), DType::kBF16, out_features, in_features, team);
  }
  if (blas == nullptr) return;
  std::vector<float> wide(static_cast<size_t>(n));
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = ToFloat(BF16{source_[i]});
  for (size_t i = NumCopies(copies_bytes, n * 4); i > 1; --i) peer_copies_.push_back(wide);
  peer_copies_.push_back(std::move(wide));
}

double LinearBench::Operations(int64_t rows, size_t calls) const {
  return 2.0 * static_cast<double>(rows * out_features_) * static_cast<double>(in_features_) *
         static_cast<double>(calls);
}

double LinearBench::Run(int64_t rows, size_t calls, WorkerTeam& team) {
  const TimePoint start = Clock::now();
  for (size_t i = 0; i < calls; ++i, ++next_)
    Linear(copies_[next_ % copies_.size()], x_.data(), rows, nullptr, y_.data(), team);
  seconds_ = SecondsSince(start);
  return Operations(rows, calls) / seconds_ / 1e9;
}

double LinearBench::RunPeer(int64_t rows, size_t calls) {
  const TimePoint start = Clock::now();
  for (size_t i = 0; i < calls; ++i, ++next_peer_) {
    blas_->Linear({rows, out_features_, in_features_},
                  peer_copies_[next_peer_ % peer_copies_.size()].data(), x_.data(), peer_y_.data());
  }
  return Operations(rows, calls) / SecondsSince(start) / 1e9;
}

// Compares some outputs of the last row with sums in double precision, and all outputs with
// OpenBLAS's.
Status LinearBench::Check(int64_t rows) const {
  const float* x = &x_[static_cast<size_t>((rows - 1) * in_features_)];
  const float* y = &y_[static_cast<size_t>((rows - 1) * out_features_)];
  const double tolerance = 1e-5 * static_cast<double>(in_features_);
  for (int64_t o = 0; o < out_features_; o += 97) {
    double sum = 0;
    for (int64_t i = 0; i < in_features_; ++i)
      sum += double{x[i]} * ToFloat(BF16{source_[static_cast<size_t>(o * in_features_ + i)]});
    if (!(std::abs(y[o] - sum) <= tolerance))
      return InternalError(fmt::format("linear: output {} is {}, not {}", o, y[o], sum));
  }
  for (size_t i = 0; blas_ != nullptr && i < static_cast<size_t>(rows * out_features_); ++i) {
    if (!(std::abs(y_[i] - peer_y_[i]) <= tolerance))
      return InternalError(fmt::format("linear: {}, OpenBLAS says {}", y_[i], peer_y_[i]));
  }
  return OkStatus();
}

Result<std::vector<Measurement>> LinearBench::Measure(int64_t rows, int repeats, WorkerTeam& team) {
  const auto outputs = static_cast<size_t>(rows * out_features_),
             inputs = static_cast<size_t>(rows * in_features_);
  x_ = RandomValues(inputs, static_cast<uint32_t>(rows));
  y_.assign(outputs, NAN);
  peer_y_.assign(outputs, NAN);
  const size_t calls = CallsOfSample(rows, Operations(rows, 1));
  const std::vector<std::span<const std::byte>> ranges = MemoryOf(copies_);
  // How many operations each byte of the weights takes part in: it makes GFLOP/s of GB/s.
  const double operations_per_byte = Operations(rows, copies_.size()) / BytesOf(ranges);
  const nlohmann::json sizes = {{"rows", rows},
                                {"out", out_features_},
                                {"in", in_features_},
                                {"weights", DTypeName(DType::kBF16)},
                                {"threads", team.num_workers()},
                                {"isa", CpuIsaName(ActiveCpuIsa())},
                                {"repeats", repeats}};
  const StreamRead how = FastestStreamRead(ranges, team);
  std::vector<double> reads, peaks;
  const auto ours = [&] { return Run(rows, calls, team); };
  std::vector<Measurement> measured;
  measured.push_back(MeasureRatePair(
      "linear", sizes, repeats,
      {"GFLOP/s", "the smaller of streaming read of the weights and multiply-adds", "", ours, [&] {
         reads.push_back(MeasureStreamRead(ranges, how, team));
         peaks.push_back(MeasureFmaPeak(seconds_, team));
         return std::min(reads.back() * operations_per_byte, peaks.back());
       }}));
  measured.back().note += fmt::format(
      "; read {:.1f} GB/s allows {:.0f} GFLOP/s, multiply-adds {:.0f} GFLOP/s",
      Percentile(reads, 0.5), Percentile(reads, 0.5) * operations_per_byte, Percentile(peaks, 0.5));
  if (blas_ != nullptr) {
    blas_->SetNumThreads(team.num_workers());
    measured.push_back(MeasureRatePair("linear_against_peer", sizes, repeats,
                                       {"GFLOP/s", blas_->description() + ", fp32 weights", "",
                                        ours, [&] { return RunPeer(rows, calls); }}));
  }
  LAMINA_RETURN_IF_ERROR(Check(rows));
  return measured;
}

}  // namespace lamina
