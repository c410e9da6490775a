// The attention cases of `lamina bench kernels`.
#pragma once

#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "bench/kernels/kernel_samples.h"
#include "kernels/token_slab.h"

namespace lamina {

// How the tokens of sequences lie in the slab.
enum class SlotOrder {
  // Each sequence is one run of slots, as on a fresh slab.
  kRuns,
  // As the allocator leaves them after 10,000 arrivals and departures at 90 % occupancy
  // (kv_churn.h).
  kChurn,
  // Every token anywhere, which a free list without runs would come to.
  kRandom,
};

// "runs", "churn" or "random".
std::string ToText(SlotOrder order);

// Decode attention of one layer.
struct AttentionCase {
  DType dtype = DType::kBF16;
  int head_dim = 128;
  int group = 1;  // query heads per KV head
  int64_t context = 1024;
  SlotOrder order = SlotOrder::kRuns;
};

// One layer of a slab that is full of numbers, and so large that no cache holds it. Thread: owner.
class AttentionBench {
 public:
  static constexpr int kKvHeads = 8;

  // The slab has at least `slab_bytes`, and room for two sequences of `longest_context` tokens.
  // kOutOfSpace if that is more than half of the machine's memory.
  static Result<std::unique_ptr<AttentionBench>> Create(DType dtype, int head_dim,
                                                        int64_t slab_bytes,
                                                        int64_t longest_context);

  // Measures one row per sequence over all of its tokens; sequences fill about nine tenths of the
  // slab. The reference is the roofline for kRuns (streaming read) and kRandom (read of rows of
  // that size), and the rate on a fresh slab for kChurn. kInternal if the result is wrong.
  // REQUIRES: test.context <= longest_context.
  Result<Measurement> Measure(const AttentionCase& test, int repeats, WorkerTeam& team) const;

 private:
  using Tables = std::vector<std::vector<TokenSlot>>;

  AttentionBench(std::unique_ptr<TokenSlab> slab) : slab_(std::move(slab)) {}
  Result<Tables> MakeTables(const AttentionCase& test) const;

  std::unique_ptr<TokenSlab> slab_;
};

}  // namespace lamina
