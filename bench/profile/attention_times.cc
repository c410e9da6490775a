#include "bench/profile/attention_times.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "kernels/attention.h"
#include "kernels/token_slab.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr int64_t kDecodeContext = 512;
constexpr int64_t kChunks[] = {32, 512};  // rows of a prompt
constexpr int kRepeats = 7;

// Measures the kernel alone, as it runs on memory nodes and, for prompts, on compute nodes.
class Bench {
 public:
  Bench(const AttentionHeads& heads, const TokenSlab& slab, WorkerTeam& team)
      : shape_{heads.num_heads, heads.num_kv_heads, heads.head_dim,
               1 / std::sqrt(static_cast<float>(heads.head_dim))},
        kv_(slab.View(0)),
        slots_(static_cast<size_t>(slab.capacity_tokens())),
        team_(team) {
    std::iota(slots_.begin(), slots_.end(), TokenSlot{0});
  }

  AttentionTime Decode(int64_t context) {
    AttentionTime time;
    std::vector<AttentionRow> rows;
    for (int64_t at = 0; at + context <= std::ssize(slots_); at += context) {
      rows.push_back({nullptr, &slots_[static_cast<size_t>(at)], context});
      time.load.AddDecode(context);
    }
    return Run(std::move(rows), time);
  }

  AttentionTime Prefill(int64_t count) {
    AttentionTime time;
    std::vector<AttentionRow> rows;
    for (int64_t i = 1; i <= count; ++i) rows.push_back({nullptr, slots_.data(), i});
    time.load.AddPrefill(0, count);
    return Run(std::move(rows), time);
  }

 private:
  AttentionTime Run(std::vector<AttentionRow> rows, AttentionTime time) {
    const size_t width =
        static_cast<size_t>(shape_.num_heads) * static_cast<size_t>(shape_.head_dim);
    const std::vector<float> q(rows.size() * width, 0.1f);
    std::vector<float> out(q.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].q = &q[i * width];
      rows[i].out = &out[i * width];
    }
    Attention(shape_, kv_, rows, team_);  // warms up
    std::vector<double> seconds;
    for (int i = 0; i < kRepeats; ++i) {
      const TimePoint start = Clock::now();
      Attention(shape_, kv_, rows, team_);
      seconds.push_back(SecondsSince(start));
    }
    time.seconds = Percentile(std::move(seconds), 0.5);
    return time;
  }

  const AttentionShape shape_;
  const KvView kv_;
  std::vector<TokenSlot> slots_;
  WorkerTeam& team_;
};

}  // namespace

Result<std::vector<AttentionTime>> MeasureAttention(const AttentionHeads& heads, WorkerTeam& team,
                                                    int64_t kv_bytes) {
  const KvShape shape{1, heads.num_kv_heads, heads.head_dim, heads.dtype};
  const int64_t capacity = std::max(kv_bytes / shape.bytes_per_token(), 2 * kDecodeContext);
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<TokenSlab> slab,
                          TokenSlab::Create(shape, capacity));
  const std::vector<float> row(
      static_cast<size_t>(heads.num_kv_heads) * static_cast<size_t>(heads.head_dim), 0.5f);
  for (TokenSlot slot = 0; slot < slab->capacity_tokens(); ++slot)
    slab->Write(0, slot, row.data(), row.data());
  Bench bench(heads, *slab, team);
  std::vector<AttentionTime> times = {bench.Decode(kDecodeContext)};
  for (const int64_t count : kChunks) times.push_back(bench.Prefill(count));
  return times;
}

}  // namespace lamina
