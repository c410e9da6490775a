#include "kernels/attention.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/kernel_table.h"

namespace lamina {
namespace {

// Heads of neighbouring rows that share each read of K and V: enough to be bound by arithmetic, few
// enough that their q and outputs stay in L1.
constexpr int kSharedHeads = 16;

// Below this many tokens times heads a call ends sooner than a sleeping worker wakes.
constexpr int64_t kMinParallelAttention = 512;

// Rows [first, first + num), which name the same slots and which one task takes together.
struct RowGroup {
  int first;
  int num;
  int64_t num_tokens;  // of the longest
};

struct Plan {
  std::vector<RowGroup> groups;  // longest first, so that the last tasks to be handed out are short
  int64_t work = 0;              // tokens times heads
};

void MakePlan(const AttentionShape& shape, std::span<const AttentionRow> rows, Plan& plan) {
  const int max_rows = std::max(1, kSharedHeads / shape.group());
  plan.groups.clear();
  plan.work = 0;
  for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
    const AttentionRow& row = rows[i];
    plan.work += row.num_tokens * shape.num_heads;
    if (i > 0) {
      RowGroup& last = plan.groups.back();
      if (last.num < max_rows && rows[i - 1].slots == row.slots &&
          last.num_tokens <= row.num_tokens) {
        ++last.num;
        last.num_tokens = row.num_tokens;
        continue;
      }
    }
    plan.groups.push_back({i, 1, row.num_tokens});
  }
  std::sort(plan.groups.begin(), plan.groups.end(), [](const RowGroup& a, const RowGroup& b) {
    return a.num_tokens * a.num != b.num_tokens * b.num
               ? a.num_tokens * a.num > b.num_tokens * b.num
               : a.first < b.first;
  });
}

AttentionScratch& ThreadAttentionScratch() {
  static thread_local const auto scratch = std::make_unique<AttentionScratch>();
  return *scratch;
}

// One call of Attention, which all workers share.
struct Job {
  const AttentionShape& shape;
  const KvView& kv;
  std::span<const AttentionRow> rows;
  const Plan& plan;
  const KernelTable& kernels;
  int num_workers;
  std::atomic<int64_t> next_task{0};

  const AttentionRow& LastRow(const RowGroup& group) const {
    return rows[group.first + group.num - 1];
  }

  // Takes task after task until none is left; a task is a (group of rows, kv_head). A worker that
  // is free takes the next one, since which worker computes a task does not change its result.
  void Work() {
    const auto num_tasks = static_cast<int64_t>(plan.groups.size()) * shape.num_kv_heads;
    for (int64_t i = next_task.fetch_add(1, std::memory_order_relaxed); i < num_tasks;
         i = next_task.fetch_add(1, std::memory_order_relaxed)) {
      const RowGroup& group = plan.groups[i / shape.num_kv_heads];
      const int kv_head = static_cast<int>(i % shape.num_kv_heads);
      // The task that this worker gets next if all workers are equally fast. A wrong guess costs a
      // useless prefetch.
      const int64_t next = i + num_workers;
      const AttentionRow* next_row =
          next < num_tasks ? &LastRow(plan.groups[next / shape.num_kv_heads]) : nullptr;
      for (int head = 0; head < shape.group(); head += kMaxTaskHeads) {
        const int num_heads = std::min(kMaxTaskHeads, shape.group() - head);
        kernels.attention(
            {&shape, &kv, &rows[group.first], group.num, kv_head, kv_head * shape.group() + head,
             num_heads, next_row, static_cast<int>(next % shape.num_kv_heads)},
            ThreadAttentionScratch());
      }
    }
  }
};

}  // namespace

void Attention(const AttentionShape& shape, const KvView& kv, std::span<const AttentionRow> rows,
               WorkerTeam& team) {
  if (rows.empty()) return;
  static thread_local Plan plan;  // keeps its memory: a decode step allocates nothing here
  MakePlan(shape, rows, plan);
  Job job = {shape, kv, rows, plan, ActiveKernels(), team.num_workers()};
  if (plan.work < kMinParallelAttention) {
    job.Work();
  } else {
    team.Run([&job](int) { job.Work(); });
  }
}

void MergePartial(std::span<float> out_a, float& lse_a, std::span<const float> out_b, float lse_b) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  if (lse_b == kNone) return;
  if (lse_a == kNone) {
    std::copy(out_b.begin(), out_b.end(), out_a.begin());
    lse_a = lse_b;
    return;
  }
  // Relative to the larger one, so that exp cannot overflow.
  const double max = std::max(lse_a, lse_b);
  const double weight_a = std::exp(lse_a - max), weight_b = std::exp(lse_b - max);
  const double sum = weight_a + weight_b;
  const auto share_a = static_cast<float>(weight_a / sum),
             share_b = static_cast<float>(weight_b / sum);
  for (size_t i = 0; i < out_a.size(); ++i) out_a[i] = out_a[i] * share_a + out_b[i] * share_b;
  lse_a = static_cast<float>(max + std::log(sum));
}

void AddSink(std::span<float> out, float lse, float sink) {
  if (lse == -std::numeric_limits<float>::infinity()) return;  // of no keys: out is 0
  const double max = std::max(lse, sink);
  const double weight = std::exp(lse - max);
  const auto share = static_cast<float>(weight / (weight + std::exp(sink - max)));
  for (float& element : out) element *= share;
}

}  // namespace lamina
