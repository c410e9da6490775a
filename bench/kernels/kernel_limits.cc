#include "bench/kernels/kernel_limits.h"

#include <immintrin.h>

#include <atomic>
#include <string>

#include "base/clock.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

#define LAMINA_AVX2 __attribute__((target("avx2,fma")))
#define LAMINA_AVX512 __attribute__((target("avx512f")))

// Independent sums: CPUs have two units, with four cycles from one addition to the next, and a few
// more do no harm.
constexpr int kChains = 12;
// Rounds that a worker runs at a time: a few tens of microseconds.
constexpr int kFmaRounds = 20000;
constexpr int64_t kStep = 512;  // bytes
// Bytes that a worker reads at a time, so that a busy core does not hold up the others.
constexpr int64_t kReadPart = 1 << 19;

// Sends the sums to memory, or the compiler would leave them out.
template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "m"(value) : "memory");
}

LAMINA_AVX2 void FmaRoundsAvx2() {
  __m256 sum[kChains];
  for (__m256& s : sum) s = _mm256_set1_ps(1.0f);
  const __m256 a = _mm256_set1_ps(0.5f), b = _mm256_set1_ps(0.25f);
  for (int i = 0; i < kFmaRounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm256_fmadd_ps(sum[c], a, b);
  }
  Keep(sum);
}

LAMINA_AVX512 void FmaRoundsAvx512() {
  __m512 sum[kChains];
  for (__m512& s : sum) s = _mm512_set1_ps(1.0f);
  const __m512 a = _mm512_set1_ps(0.5f), b = _mm512_set1_ps(0.25f);
  for (int i = 0; i < kFmaRounds; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) sum[c] = _mm512_fmadd_ps(sum[c], a, b);
  }
  Keep(sum);
}

// Folds `bytes` bytes, a multiple of 16, into four accumulators.
LAMINA_AVX2 void ReadAvx2(const std::byte* p, int64_t bytes, __m256i (&sum)[4]) {
  const std::byte* end = p + bytes;
  for (; p + 128 <= end; p += 128) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      sum[i] = _mm256_xor_si256(sum[i],
                                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32 * i)));
  }
  for (; p < end; p += 16) {
    sum[0] = _mm256_xor_si256(
        sum[0], _mm256_castsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
}

LAMINA_AVX512 void ReadAvx512(const std::byte* p, int64_t bytes, __m512i (&sum)[4]) {
  const std::byte* end = p + bytes;
  for (; p + 256 <= end; p += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_loadu_si512(p + 64 * i));
  }
  for (; p + 64 <= end; p += 64) sum[0] = _mm512_xor_si512(sum[0], _mm512_loadu_si512(p));
  for (; p < end; p += 16) {
    sum[0] = _mm512_xor_si512(
        sum[0], _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
}

void PrefetchRow(const std::byte* row, int64_t row_bytes) {
  for (int64_t i = 0; i < row_bytes; i += 64) __builtin_prefetch(row + i);
}

LAMINA_AVX2 void ReadRowsAvx2(const SlotRows& rows, int ahead) {
  __m256i sum[4] = {};
  const auto n = static_cast<int64_t>(rows.slots.size());
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n)
      PrefetchRow(rows.base + rows.slots[static_cast<size_t>(i + ahead)] * rows.row_bytes,
                  rows.row_bytes);
    ReadAvx2(rows.base + rows.slots[static_cast<size_t>(i)] * rows.row_bytes, rows.row_bytes, sum);
  }
  Keep(sum);
}

LAMINA_AVX512 void ReadRowsAvx512(const SlotRows& rows, int ahead) {
  __m512i sum[4] = {};
  const auto n = static_cast<int64_t>(rows.slots.size());
  for (int64_t i = 0; i < n; ++i) {
    if (i + ahead < n)
      PrefetchRow(rows.base + rows.slots[static_cast<size_t>(i + ahead)] * rows.row_bytes,
                  rows.row_bytes);
    ReadAvx512(rows.base + rows.slots[static_cast<size_t>(i)] * rows.row_bytes, rows.row_bytes,
               sum);
  }
  Keep(sum);
}

// A range as so many equal streams, which are read a step of each in turn, and a rest.
class StreamReader {
 public:
  StreamReader(std::span<const std::byte> range, const StreamRead& how)
      : range_(range),
        how_(how),
        stream_bytes_(static_cast<int64_t>(range.size()) / how.streams / kStep * kStep) {}

  int streams() const { return how_.streams; }
  int64_t stream_bytes() const { return stream_bytes_; }
  const std::byte* Step(int stream, int64_t at) const {
    const std::byte* step = range_.data() + stream * stream_bytes_ + at;
    if (how_.ahead_bytes > 0) PrefetchRow(step + how_.ahead_bytes, kStep);
    return step;
  }
  std::span<const std::byte> rest() const {
    return range_.subspan(static_cast<size_t>(how_.streams * stream_bytes_));
  }

 private:
  std::span<const std::byte> range_;
  StreamRead how_;
  int64_t stream_bytes_;
};

LAMINA_AVX2 void ReadRangeAvx2(std::span<const std::byte> range, const StreamRead& how) {
  __m256i sum[4] = {};
  const StreamReader reader(range, how);
  for (int64_t at = 0; at < reader.stream_bytes(); at += kStep) {
    for (int i = 0; i < reader.streams(); ++i) ReadAvx2(reader.Step(i, at), kStep, sum);
  }
  ReadAvx2(reader.rest().data(), static_cast<int64_t>(reader.rest().size()), sum);
  Keep(sum);
}

LAMINA_AVX512 void ReadRangeAvx512(std::span<const std::byte> range, const StreamRead& how) {
  __m512i sum[4] = {};
  const StreamReader reader(range, how);
  for (int64_t at = 0; at < reader.stream_bytes(); at += kStep) {
    for (int i = 0; i < reader.streams(); ++i) ReadAvx512(reader.Step(i, at), kStep, sum);
  }
  ReadAvx512(reader.rest().data(), static_cast<int64_t>(reader.rest().size()), sum);
  Keep(sum);
}

bool Wide() { return ActiveCpuIsa() == CpuIsa::kAvx512; }

// Runs all parts on the team, each worker taking the next part when it is free, and returns GB/s.
template <typename Part, typename F>
double TimeParts(const std::vector<Part>& parts, int64_t bytes, WorkerTeam& team, const F& read) {
  std::atomic<size_t> next{0};
  const TimePoint start = Clock::now();
  team.Run([&](int) {
    for (size_t i = next.fetch_add(1); i < parts.size(); i = next.fetch_add(1)) read(parts[i]);
  });
  return static_cast<double>(bytes) / SecondsSince(start) / 1e9;
}

// The way whose median rate of three is the highest.
template <typename T, typename F>
T Fastest(const std::vector<T>& ways, const F& measure) {
  T fastest = ways.front();
  double best = 0;
  for (const T& way : ways) {
    std::vector<double> rates;
    for (int i = 0; i < 3; ++i) rates.push_back(measure(way));
    const double rate = Percentile(rates, 0.5);
    if (rate <= best) continue;
    best = rate;
    fastest = way;
  }
  return fastest;
}

}  // namespace

Status CheckLimitsOf(CpuIsa isa) {
  if (isa != CpuIsa::kScalar) return OkStatus();
  return Unimplemented(
      "the limits of a CPU without AVX2 are not known here; unset LAMINA_CPU_ISA, or measure on "
      "another machine");
}

double MeasureFmaPeak(double seconds, WorkerTeam& team) {
  std::atomic<int64_t> done{0};
  const TimePoint start = Clock::now();
  team.Run([&](int) {
    do {
      Wide() ? FmaRoundsAvx512() : FmaRoundsAvx2();
      done.fetch_add(1);
    } while (SecondsSince(start) < seconds);
  });
  const double operations =
      2.0 * kChains * kFmaRounds * (Wide() ? 16 : 8) * static_cast<double>(done.load());
  return operations / SecondsSince(start) / 1e9;
}

double MeasureStreamRead(std::span<const std::span<const std::byte>> ranges, const StreamRead& how,
                         WorkerTeam& team) {
  std::vector<std::span<const std::byte>> parts;
  int64_t bytes = 0;
  for (std::span<const std::byte> range : ranges) {
    bytes += static_cast<int64_t>(range.size());
    for (; range.size() > kReadPart; range = range.subspan(kReadPart))
      parts.push_back(range.first(kReadPart));
    parts.push_back(range);
  }
  return TimeParts(parts, bytes, team, [&how](std::span<const std::byte> part) {
    Wide() ? ReadRangeAvx512(part, how) : ReadRangeAvx2(part, how);
  });
}

double MeasureRowRead(std::span<const SlotRows> rows, int ahead, WorkerTeam& team) {
  const std::vector<SlotRows> parts(rows.begin(), rows.end());
  int64_t bytes = 0;
  for (const SlotRows& part : parts)
    bytes += part.row_bytes * static_cast<int64_t>(part.slots.size());
  return TimeParts(parts, bytes, team, [ahead](const SlotRows& part) {
    Wide() ? ReadRowsAvx512(part, ahead) : ReadRowsAvx2(part, ahead);
  });
}

StreamRead FastestStreamRead(std::span<const std::span<const std::byte>> ranges, WorkerTeam& team) {
  std::vector<StreamRead> ways;
  for (const int streams : {1, 4}) {
    for (const int64_t ahead_bytes : {0, 2048, 8192}) ways.push_back({streams, ahead_bytes});
  }
  return Fastest(ways, [&](const StreamRead& how) { return MeasureStreamRead(ranges, how, team); });
}

int FastestRowPrefetch(std::span<const SlotRows> rows, WorkerTeam& team) {
  return Fastest(std::vector<int>{2, 4, 8, 16, 32},
                 [&](int ahead) { return MeasureRowRead(rows, ahead, team); });
}

}  // namespace lamina
