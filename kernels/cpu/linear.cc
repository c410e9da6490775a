#include "kernels/linear.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/huge_memory.h"
#include "kernels/cpu/kernel_table.h"

namespace lamina {
namespace {

// Below this many multiplications a loop ends sooner than a sleeping worker wakes.
constexpr int64_t kMinParallelLinear = 1 << 16;

// Panels go to workers in multiples of this, because tiles of few rows take up to four panels at
// once.
constexpr int64_t kPanelGrain = 4;

int64_t NumPanels(int64_t out_features) { return (out_features + kPanelWidth - 1) / kPanelWidth; }

// Packs the weights of one panel's outputs; PanelElements in kernel_table.h describes the order. T
// stands for an element's bytes, since `weights`, [num_outputs, in_features], need not be aligned.
// `to` is zero before, and stays so where there are no outputs or inputs.
template <typename T>
void PackPanel(const T* weights, DType dtype, int64_t num_outputs, int64_t in_features, T* to) {
  for (int64_t o = 0; o < num_outputs; ++o) {
    for (int64_t k = 0; k < in_features; ++k) {
      const int64_t at =
          dtype == DType::kBF16 ? (k / 2 * kPanelWidth + o) * 2 + k % 2 : k * kPanelWidth + o;
      std::memcpy(to + at, weights + o * in_features + k, sizeof(T));
    }
  }
}

// Eight codes of 4 bits, a byte each, as a word whose lowest bits are the first one.
uint32_t JoinCodes(const uint8_t* codes) {
  uint64_t word;
  std::memcpy(&word, codes, sizeof(word));
  word = (word | word >> 4) & 0x00ff00ff00ff00ffu;
  word = (word | word >> 8) & 0x0000ffff0000ffffu;
  return static_cast<uint32_t>(word | word >> 16);
}

// Packs the codes of one output, whose places in the panel begin at `to`. codes: [in_features].
void PackCodes(const uint8_t* codes, bool four_bits, int64_t in_features, std::byte* to) {
  if (!four_bits) {
    for (int64_t k = 0; k < in_features; ++k) to[k * kPanelWidth] = std::byte{codes[k]};
    return;
  }
  std::array<uint8_t, 8> rest{};
  for (int64_t k = 0; k < in_features; k += 8) {
    const bool all = k + 8 <= in_features;
    if (!all) std::copy(codes + k, codes + in_features, rest.begin());
    const uint32_t word = JoinCodes(all ? codes + k : rest.data());
    std::memcpy(to + k / 8 * kPanelWidth * 4, &word, sizeof(word));
  }
}

// Packs the codes, scales and offsets of one panel's outputs, from output `first` on. `to` is zero
// before.
void PackCodePanel(const QuantizedMatrix& m, const CodePanel& parts, int64_t first, std::byte* to) {
  const int64_t groups = m.num_groups();
  const auto store = [&](float number, std::byte* at) {
    if (m.format.dtype == DType::kF32) std::memcpy(at, &number, sizeof(float));
    const uint16_t half = m.format.dtype == DType::kF16 ? ToF16(number).bits : ToBF16(number).bits;
    if (m.format.dtype != DType::kF32) std::memcpy(at, &half, sizeof(half));
  };
  const int64_t number_bytes = m.format.dtype == DType::kF32 ? 4 : 2;
  for (int64_t o = 0; o < std::min<int64_t>(kPanelWidth, m.out_features - first); ++o) {
    const bool four_bits = HasFourBits(m.format.code);
    PackCodes(m.codes.data() + (first + o) * m.in_features, four_bits, m.in_features,
              to + (four_bits ? 4 * o : o));
    for (int64_t g = 0; g < groups; ++g) {
      const auto from = static_cast<size_t>((first + o) * groups + g);
      const int64_t at = g * kPanelWidth + o;
      store(m.scales[from], to + parts.scales + at * number_bytes);
      if (m.format.offset == WeightOffset::kZero)
        to[parts.offsets + at] = static_cast<std::byte>(m.zeros[from]);
      if (m.format.offset == WeightOffset::kMinimum)
        store(m.minima[from], to + parts.offsets + at * number_bytes);
    }
  }
}

LinearScratch& ThreadLinearScratch() {
  static thread_local const auto scratch = std::make_unique<LinearScratch>();
  return *scratch;
}

}  // namespace

void PackedWeights::Allocate() {
  own_ = MapHuge(static_cast<size_t>(size_bytes_));
  data_ = own_;
  if (own_ != nullptr) return;
  std::fprintf(stderr, "lamina: no memory for %lld bytes of weights\n",
               static_cast<long long>(size_bytes_));
  std::abort();
}

PackedWeights::PackedWeights(const void* weights, DType dtype, int64_t out_features,
                             int64_t in_features, WorkerTeam& team)
    : PackedWeights(WeightFormat(dtype), out_features, in_features) {
  const auto element = static_cast<int64_t>(ElementSize(dtype));
  const int64_t panel_bytes = PanelElements(dtype, in_features) * element;
  Allocate();
  team.ParallelFor(NumPanels(out_features), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t num_outputs = std::min<int64_t>(kPanelWidth, out_features - p * kPanelWidth);
      const auto* from =
          static_cast<const std::byte*>(weights) + p * kPanelWidth * in_features * element;
      auto* to = static_cast<std::byte*>(own_) + p * panel_bytes;
      if (dtype == DType::kF32) {
        PackPanel(reinterpret_cast<const std::array<std::byte, 4>*>(from), dtype, num_outputs,
                  in_features, reinterpret_cast<std::array<std::byte, 4>*>(to));
      } else {
        PackPanel(reinterpret_cast<const std::array<std::byte, 2>*>(from), dtype, num_outputs,
                  in_features, reinterpret_cast<std::array<std::byte, 2>*>(to));
      }
    }
  });
}

PackedWeights::PackedWeights(const QuantizedMatrix& matrix, WorkerTeam& team)
    : PackedWeights(matrix.format, matrix.out_features, matrix.in_features) {
  Allocate();
  const CodePanel parts = CodePanel::Of(format_, in_features_);
  auto* const panels = static_cast<std::byte*>(own_);
  const int64_t num_panels = NumPanels(out_features_);
  team.ParallelFor(num_panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      PackCodePanel(matrix, parts, p * kPanelWidth, panels + p * parts.size);
  });
  if (format_.indexed)
    std::memcpy(panels + num_panels * parts.size, matrix.group_of.data(),
                matrix.group_of.size() * sizeof(int32_t));
}

PackedWeights::PackedWeights(
    const WeightFormat& format, int64_t out_features, int64_t in_features, WorkerTeam& team,
    const std::function<void(int64_t begin, int64_t end, std::byte* to)>& read)
    : PackedWeights(format, out_features, in_features) {
  constexpr int64_t kPiece = int64_t{2} << 20;  // a huge page is cleared by who fills it
  Allocate();
  auto* const panels = static_cast<std::byte*>(own_);
  team.ParallelFor((size_bytes_ + kPiece - 1) / kPiece, 1, [&](int64_t first, int64_t last) {
    for (int64_t begin = first * kPiece; begin < last * kPiece; begin += kPiece)
      read(begin, std::min(begin + kPiece, size_bytes_), panels + begin);
  });
}

PackedWeights::PackedWeights(const WeightFormat& format, int64_t out_features, int64_t in_features)
    : size_bytes_(SizeBytes(format, out_features, in_features)),
      out_features_(out_features),
      in_features_(in_features),
      format_(format) {}

PackedWeights::~PackedWeights() { UnmapHuge(own_, static_cast<size_t>(size_bytes_)); }

int64_t PackedWeights::SizeBytes(const WeightFormat& format, int64_t out_features,
                                 int64_t in_features) {
  if (format.is_quantized()) {
    return NumPanels(out_features) * CodePanel::Of(format, in_features).size +
           (format.indexed ? in_features * static_cast<int64_t>(sizeof(int32_t)) : 0);
  }
  return NumPanels(out_features) * PanelElements(format.dtype, in_features) *
         static_cast<int64_t>(ElementSize(format.dtype));
}

PackedWeights::PackedWeights(PackedWeights&& other) noexcept { *this = std::move(other); }

PackedWeights& PackedWeights::operator=(PackedWeights&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(own_, other.own_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(out_features_, other.out_features_);
  std::swap(in_features_, other.in_features_);
  std::swap(format_, other.format_);
  return *this;
}

void Linear(const PackedWeights& weights, const float* x, int64_t rows, const float* bias, float* y,
            WorkerTeam& team) {
  if (rows <= 0) return;
  const LinearArgs args = {weights.data(),
                           weights.format(),
                           weights.out_features(),
                           weights.in_features(),
                           x,
                           rows,
                           bias,
                           y};
  const KernelTable& kernels = ActiveKernels();
  const int64_t panels = NumPanels(args.out_features);
  if (rows * args.out_features * args.in_features < kMinParallelLinear || team.num_workers() == 1) {
    kernels.linear(args, 0, panels, ThreadLinearScratch());
    return;
  }
  // Grains of several panels only if there are at least four for each worker: one grain more or
  // less is then a small part of a worker's share.
  const struct {
    const LinearArgs& args;
    const KernelTable& kernels;
    int64_t panels, grain, workers;
  } job = {args, kernels, panels, panels >= 4 * kPanelGrain * team.num_workers() ? kPanelGrain : 1,
           team.num_workers()};
  team.Run([&job](int worker) {  // captures one pointer: std::function allocates for a larger one
    const int64_t grains = (job.panels + job.grain - 1) / job.grain;
    const int64_t begin = grains * worker / job.workers * job.grain;
    const int64_t end = std::min(job.panels, grains * (worker + 1) / job.workers * job.grain);
    if (begin < end) job.kernels.linear(job.args, begin, end, ThreadLinearScratch());
  });
}

}  // namespace lamina
