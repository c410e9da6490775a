#include "bench/kernels/kernel_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "base/clock.h"
#include "bench/kernels/kernel_limits.h"
#include "bench/kernels/kv_churn.h"
#include "bench/kernels/machine_memory.h"
#include "bench/kernels/random_values.h"
#include "kernels/reference/reference.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr double kOccupancy = 0.9;
// From here on ageing the slab takes many seconds, and is announced.
constexpr int64_t kLongContext = 1 << 14;

// The attention of one decode step in one layer.
class AttentionPass {
 public:
  AttentionPass(const AttentionShape& shape, const KvView& kv,
                const std::vector<std::vector<TokenSlot>>& tables)
      : shape_(shape),
        kv_(kv),
        tables_(tables),
        row_(static_cast<size_t>(shape.num_heads * shape.head_dim)) {
    q_ = RandomValues(tables.size() * row_, 5);
    out_.resize(q_.size());
    for (size_t i = 0; i < tables.size(); ++i) {
      const auto num_tokens = static_cast<int64_t>(tables[i].size());
      num_tokens_ += num_tokens;
      rows_.push_back({&q_[i * row_], tables[i].data(), num_tokens, &out_[i * row_], nullptr});
    }
  }

  int64_t row_bytes() const { return KvRowBytes(kv_.dtype, 1, shape_.head_dim); }
  int64_t kv_bytes() const { return num_tokens_ * 2 * shape_.num_kv_heads * row_bytes(); }
  // The mean length of a sequence.
  double mean_tokens() const {
    return static_cast<double>(num_tokens_) / static_cast<double>(tables_.size());
  }
  // A multiply-add counts as two operations, for q k and for the weighted sum of v.
  double operations_per_byte() const {
    return 4.0 * shape_.group() * shape_.head_dim / static_cast<double>(2 * row_bytes());
  }

  // GB/s of K and V.
  double Run(WorkerTeam& team) {
    const TimePoint start = Clock::now();
    Attention(shape_, kv_, rows_, team);
    seconds_ = SecondsSince(start);
    return static_cast<double>(kv_bytes()) / seconds_ / 1e9;
  }
  double seconds() const { return seconds_; }  // of the last Run

  // Compares the first row with the reference.
  Status Check() const {
    std::vector<float> expected(row_);
    AttentionRow row = rows_[0];
    row.out = expected.data();
    reference::Attention(shape_, kv_, {&row, 1});
    for (size_t i = 0; i < row_; ++i) {
      if (!(std::abs(out_[i] - expected[i]) <= 1e-4))
        return InternalError(fmt::format("attention: {} for {}", out_[i], expected[i]));
    }
    return OkStatus();
  }

  // What the kernel reads, in its order: for each sequence and head K, then V.
  std::vector<SlotRows> Reads() const {
    std::vector<SlotRows> reads;
    const int64_t element = static_cast<int64_t>(ElementSize(kv_.dtype));
    for (const std::vector<TokenSlot>& table : tables_) {
      for (int h = 0; h < shape_.num_kv_heads; ++h) {
        for (const void* base : {kv_.k, kv_.v}) {
          reads.push_back({static_cast<const std::byte*>(base) + h * kv_.head_stride * element,
                           kv_.slot_stride * element, table});
        }
      }
    }
    return reads;
  }

 private:
  AttentionShape shape_;
  KvView kv_;
  const std::vector<std::vector<TokenSlot>>& tables_;
  size_t row_;
  int64_t num_tokens_ = 0;
  double seconds_ = 0;
  std::vector<float> q_, out_;
  std::vector<AttentionRow> rows_;
};

// REQUIRES: every table is one run.
std::vector<std::span<const std::byte>> AsRanges(const std::vector<SlotRows>& reads) {
  std::vector<std::span<const std::byte>> ranges;
  for (const SlotRows& read : reads) {
    ranges.emplace_back(read.base + read.slots[0] * read.row_bytes,
                        static_cast<size_t>(read.row_bytes) * read.slots.size());
  }
  return ranges;
}

// The smaller of what memory and what arithmetic allow, from samples of both.
class Roofline {
 public:
  Roofline(const AttentionPass& step, std::function<double()> read, WorkerTeam& team)
      : step_(step), read_(std::move(read)), team_(team) {}

  double Sample() {
    read_rates_.push_back(read_());
    fma_rates_.push_back(MeasureFmaPeak(step_.seconds(), team_));
    return std::min(read_rates_.back(), fma_rates_.back() / step_.operations_per_byte());
  }

  std::string note() const {
    const double read = Percentile(read_rates_, 0.5), fma = Percentile(fma_rates_, 0.5);
    return fmt::format("read {:.1f} GB/s, multiply-adds {:.0f} GFLOP/s allow {:.1f} GB/s", read,
                       fma, fma / step_.operations_per_byte());
  }

 private:
  const AttentionPass& step_;
  std::function<double()> read_;
  WorkerTeam& team_;
  std::vector<double> read_rates_, fma_rates_;
};

Measurement MeasureAgainstRoofline(AttentionPass& step, const nlohmann::json& sizes,
                                   SlotOrder order, int repeats, WorkerTeam& team) {
  const std::vector<SlotRows> reads = step.Reads();
  std::vector<std::span<const std::byte>> ranges;
  std::function<double()> read;
  std::string access = "streaming read";
  if (order == SlotOrder::kRuns) {
    ranges = AsRanges(reads);
    const StreamRead how = FastestStreamRead(ranges, team);
    read = [&ranges, &team, how] { return MeasureStreamRead(ranges, how, team); };
  } else {
    const int ahead = FastestRowPrefetch(reads, team);
    read = [&reads, &team, ahead] { return MeasureRowRead(reads, ahead, team); };
    access = fmt::format("read of random rows of {} B", reads.front().row_bytes);
  }
  Roofline roofline(step, read, team);
  Measurement m =
      MeasureRatePair("attention", sizes, repeats,
                      {"GB/s", "the smaller of " + access + " and multiply-adds", "",
                       [&] { return step.Run(team); }, [&] { return roofline.Sample(); }});
  m.note += "; " + roofline.note();
  return m;
}

}  // namespace

std::string ToText(SlotOrder order) {
  switch (order) {
    case SlotOrder::kRuns: return "runs";
    case SlotOrder::kChurn: return "churn";
    case SlotOrder::kRandom: return "random";
  }
  return "unknown";
}

Result<std::unique_ptr<AttentionBench>> AttentionBench::Create(DType dtype, int head_dim,
                                                               int64_t slab_bytes,
                                                               int64_t longest_context) {
  const KvShape shape = {1, kKvHeads, head_dim, dtype};
  const auto for_two =
      static_cast<int64_t>(std::ceil(2 * static_cast<double>(longest_context) / kOccupancy));
  const int64_t capacity = std::max(slab_bytes / shape.bytes_per_token(), for_two);
  LAMINA_RETURN_IF_ERROR(CheckFits(static_cast<double>(capacity * shape.bytes_per_token()),
                                   fmt::format("two sequences of {} tokens", longest_context)));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<TokenSlab> slab, TokenSlab::Create(shape, capacity));
  // Rows begin at different places in a few random values, so that hardly any two are the same.
  const auto width = static_cast<size_t>(kKvHeads * head_dim);
  const std::vector<float> values = RandomValues(width + 1024, 3);
  for (TokenSlot slot = 0; slot < slab->capacity_tokens(); ++slot) {
    slab->Write(0, slot, &values[slot * 7919u % 1024], &values[slot * 104729u % 1024]);
  }
  return std::unique_ptr<AttentionBench>(new AttentionBench(std::move(slab)));
}

Result<AttentionBench::Tables> AttentionBench::MakeTables(const AttentionCase& test) const {
  const int64_t capacity = slab_->capacity_tokens();
  if (test.order == SlotOrder::kChurn) {
    // Kept for all groups and teams: ageing a slab takes longer than measuring on it.
    static std::map<std::tuple<int64_t, int64_t>, Tables> known;
    Tables& tables = known[{capacity, test.context}];
    if (tables.empty()) {
      if (test.context >= kLongContext)
        std::cerr << fmt::format("ageing a slab with sequences of {} tokens\n", test.context);
      LAMINA_ASSIGN_OR_RETURN(tables, RunChurn({capacity, test.context, kOccupancy}));
    }
    return tables;
  }
  std::vector<TokenSlot> slots(static_cast<size_t>(capacity));
  std::iota(slots.begin(), slots.end(), TokenSlot{0});
  if (test.order == SlotOrder::kRandom) std::shuffle(slots.begin(), slots.end(), std::mt19937(11));
  const auto used = static_cast<int64_t>(static_cast<double>(capacity) * kOccupancy);
  Tables tables;
  for (int64_t at = 0; at + test.context <= used; at += test.context) {
    tables.emplace_back(slots.begin() + at, slots.begin() + at + test.context);
  }
  return tables;
}

Result<Measurement> AttentionBench::Measure(const AttentionCase& test, int repeats,
                                            WorkerTeam& team) const {
  const int num_heads = kKvHeads * test.group;
  const AttentionShape shape = {num_heads, kKvHeads, test.head_dim,
                                1.0f / std::sqrt(static_cast<float>(test.head_dim))};
  LAMINA_ASSIGN_OR_RETURN(const Tables tables, MakeTables(test));
  AttentionPass step(shape, slab_->View(0), tables);
  nlohmann::json sizes = {{"kv", DTypeName(test.dtype)},
                          {"head_dim", test.head_dim},
                          {"group", test.group},
                          {"context", test.context},
                          {"slots", ToText(test.order)},
                          {"kv_heads", kKvHeads},
                          {"sequences", tables.size()},
                          {"mean_tokens", step.mean_tokens()},
                          {"threads", team.num_workers()},
                          {"isa", CpuIsaName(ActiveCpuIsa())},
                          {"mean_run", MeanRunTokens(tables)},
                          {"repeats", repeats}};
  Measurement m;
  if (test.order == SlotOrder::kChurn) {
    const Tables fresh_tables = FreshTables(tables);
    AttentionPass fresh(shape, slab_->View(0), fresh_tables);
    m = MeasureRatePair("attention", sizes, repeats,
                        {"GB/s", "the same lengths on a fresh slab",
                         fmt::format("mean run of {:.0f} slots", MeanRunTokens(tables)),
                         [&] { return step.Run(team); }, [&] { return fresh.Run(team); }});
  } else {
    m = MeasureAgainstRoofline(step, sizes, test.order, repeats, team);
  }
  LAMINA_RETURN_IF_ERROR(step.Check());
  return m;
}

}  // namespace lamina
