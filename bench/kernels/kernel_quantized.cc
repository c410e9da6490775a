#include "bench/kernels/kernel_quantized.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/clock.h"
#include "bench/kernels/kernel_limits.h"
#include "bench/kernels/linear_sample.h"
#include "bench/kernels/machine_memory.h"
#include "bench/kernels/random_values.h"
#include "kernels/reference/reference.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

struct NamedFormat {
  const char* name;
  WeightFormat format;
};

const std::vector<NamedFormat>& NamedFormats() {
  static const std::vector<NamedFormat> formats = {
      {"w4g32", {WeightCode::kInt4, DType::kBF16, 32, WeightOffset::kMinus8}},
      {"w4g64", {WeightCode::kInt4, DType::kBF16, 64, WeightOffset::kMinus8}},
      {"w4g128", {WeightCode::kInt4, DType::kBF16, 128, WeightOffset::kMinus8}},
      {"mxfp4", {WeightCode::kF4, DType::kBF16, 32}},
      {"w4g128z", {WeightCode::kInt4, DType::kF16, 128, WeightOffset::kZero}},
      {"w8", {WeightCode::kInt8, DType::kBF16, 0}},
      {"w8g32", {WeightCode::kInt8, DType::kF16, 32}},
      {"fp8", {WeightCode::kF8, DType::kF32, 0}},
      {"fp8g128", {WeightCode::kF8, DType::kF32, 128}},
  };
  return formats;
}

}  // namespace

std::optional<WeightFormat> QuantizedFormatNamed(const std::string& name) {
  for (const NamedFormat& named : NamedFormats()) {
    if (name == named.name) return named.format;
  }
  return std::nullopt;
}

std::vector<std::string> QuantizedFormatNames() {
  std::vector<std::string> names;
  for (const NamedFormat& named : NamedFormats()) names.emplace_back(named.name);
  return names;
}

QuantizedMatrix MakeQuantizedMatrix(const WeightFormat& format, int64_t out_features,
                                    int64_t in_features) {
  QuantizedMatrix m{.format = format, .out_features = out_features, .in_features = in_features};
  std::mt19937 random(9);
  m.codes.resize(static_cast<size_t>(out_features * in_features));
  for (uint8_t& code : m.codes) {
    code = static_cast<uint8_t>(random() >> 24);
    if (HasFourBits(format.code)) code &= 15;
    if (format.code == WeightCode::kF8) code &= 0xb7;  // below 1
  }
  const auto groups = static_cast<size_t>(out_features * m.num_groups());
  m.scales.assign(groups, format.code == WeightCode::kInt4   ? 0x1p-3f
                          : format.code == WeightCode::kInt8 ? 0x1p-7f
                                                             : 1.0f);
  if (format.offset == WeightOffset::kZero) m.zeros.assign(groups, 7);
  return m;
}

Status CheckLastRow(const std::string& name, const QuantizedMatrix& matrix,
                    std::span<const float> x, std::span<const float> y) {
  const int64_t in = matrix.in_features, out = matrix.out_features;
  const std::span<const float> last_x = x.last(static_cast<size_t>(in)),
                               last_y = y.last(static_cast<size_t>(out));
  const std::vector<float> weights = reference::Dequantize(matrix);
  for (int64_t o = 0; o < out; o += 97) {
    double sum = 0;
    for (int64_t i = 0; i < in; ++i)
      sum += double{last_x[static_cast<size_t>(i)]} * weights[static_cast<size_t>(o * in + i)];
    const float got = last_y[static_cast<size_t>(o)];
    if (!(std::abs(got - sum) <= 1e-5 * static_cast<double>(in)))
      return InternalError(fmt::format("{}: output {} is {}, not {}", name, o, got, sum));
  }
  return OkStatus();
}

Status QuantizedLinearBench::CheckFits(int64_t out_features, int64_t in_features, int64_t rows) {
  const auto out = static_cast<double>(out_features), in = static_cast<double>(in_features);
  // Codes in order, packed, and as bf16 in order and packed.
  return lamina::CheckFits(
      out * in * (1 + 1 + 2 + 2) + static_cast<double>(rows) * (in + out) * sizeof(float),
      fmt::format("quantized weights of {}x{} and {} rows", out_features, in_features, rows));
}

QuantizedLinearBench::QuantizedLinearBench(const std::string& format, int64_t out_features,
                                           int64_t in_features, int64_t copies_bytes,
                                           WorkerTeam& team)
    : name_(format),
      matrix_(MakeQuantizedMatrix(*QuantizedFormatNamed(format), out_features, in_features)) {
  const auto num_copies = [copies_bytes](int64_t bytes) {
    return (copies_bytes + bytes - 1) / bytes;
  };
  const int64_t bytes = PackedWeights::SizeBytes(matrix_.format, out_features, in_features);
  for (int64_t i = num_copies(bytes); i > 0; --i) copies_.emplace_back(matrix_, team);
  const std::vector<uint16_t> one(matrix_.codes.size(), ToBF16(0.25f).bits);
  for (int64_t i = num_copies(out_features * in_features * 2); i > 0; --i)
    bf16_copies_.emplace_back(one.data(), DType::kBF16, out_features, in_features, team);
}

double QuantizedLinearBench::Operations(int64_t rows, size_t calls) const {
  return 2.0 * static_cast<double>(rows) * static_cast<double>(matrix_.codes.size()) *
         static_cast<double>(calls);
}

double QuantizedLinearBench::Run(const std::vector<PackedWeights>& copies, int64_t rows,
                                 size_t calls, WorkerTeam& team) {
  const TimePoint start = Clock::now();
  for (size_t i = 0; i < calls; ++i, ++next_)
    Linear(copies[next_ % copies.size()], x_.data(), rows, nullptr, y_.data(), team);
  seconds_ = SecondsSince(start);
  return Operations(rows, calls) / seconds_ / 1e9;
}

Result<std::vector<Measurement>> QuantizedLinearBench::Measure(int64_t rows, int repeats,
                                                               WorkerTeam& team) {
  x_ = RandomValues(static_cast<size_t>(rows * matrix_.in_features), static_cast<uint32_t>(rows));
  y_.assign(static_cast<size_t>(rows * matrix_.out_features), NAN);
  const size_t calls = CallsOfSample(rows, Operations(rows, 1));
  const std::vector<std::span<const std::byte>> ranges = MemoryOf(copies_);
  const double bytes = BytesOf(ranges),
               operations_per_byte = Operations(rows, copies_.size()) / bytes;
  const nlohmann::json sizes = {
      {"rows", rows},      {"out", matrix_.out_features},   {"in", matrix_.in_features},
      {"weights", name_},  {"threads", team.num_workers()}, {"isa", CpuIsaName(ActiveCpuIsa())},
      {"repeats", repeats}};
  const StreamRead how = FastestStreamRead(ranges, team);
  std::vector<double> reads, peaks;
  std::vector<Measurement> measured;
  measured.push_back(
      MeasureRatePair("quantized_linear", sizes, repeats,
                      {"GFLOP/s", "the smaller of streaming read of the weights and multiply-adds",
                       "", [&] { return Run(copies_, rows, calls, team); },
                       [&] {
                         reads.push_back(MeasureStreamRead(ranges, how, team));
                         peaks.push_back(MeasureFmaPeak(seconds_, team));
                         return std::min(reads.back() * operations_per_byte, peaks.back());
                       }}));
  measured.back().note +=
      fmt::format("; {:.1f} GB/s of {:.2f} bits a weight, read allows {:.1f} GB/s",
                  measured.back().value / operations_per_byte,
                  8 * bytes / static_cast<double>(copies_.size() * matrix_.codes.size()),
                  Percentile(reads, 0.5));
  LAMINA_RETURN_IF_ERROR(CheckLastRow(name_, matrix_, x_, y_));
  measured.push_back(MeasureRatePair("quantized_against_bf16", sizes, repeats,
                                     {"GFLOP/s", "the same layer with bf16 weights", "",
                                      [&] { return Run(copies_, rows, calls, team); },
                                      [&] { return Run(bf16_copies_, rows, calls, team); }}));
  return measured;
}

}  // namespace lamina
