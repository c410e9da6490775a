#include "bench/kernels/kv_churn.h"

#include <fmt/format.h>

#include <numeric>
#include <random>

#include "scheduler/slot_allocator.h"

namespace lamina {
namespace {

struct RunningSequence {
  std::vector<TokenSlot> slots;
  size_t last_tokens = 0;  // the sequence leaves when it has so many
};

class ChurnRun {
 public:
  explicit ChurnRun(const KvChurn& churn)
      : churn_(churn),
        allocator_(churn.capacity_tokens),
        random_(churn.seed),
        max_used_(
            static_cast<int64_t>(static_cast<double>(churn.capacity_tokens) * churn.occupancy)) {}

  Status Check() const {
    if (churn_.mean_tokens >= 2 && churn_.mean_tokens <= max_used_) return OkStatus();
    return InvalidArgument(
        fmt::format("churn: a slab of {} tokens at occupancy {} admits no prompts of up to {} "
                    "tokens; expected 2 to {}",
                    churn_.capacity_tokens, churn_.occupancy, churn_.mean_tokens, max_used_));
  }

  std::vector<std::vector<TokenSlot>> Run() {
    Draw();
    Admit();
    while (departures_ < churn_.departures) {
      Step();
      Admit();
    }
    std::vector<std::vector<TokenSlot>> tables;
    for (RunningSequence& sequence : running_) tables.push_back(std::move(sequence.slots));
    return tables;
  }

 private:
  // Draws the next sequence to be admitted.
  void Draw() {
    std::uniform_int_distribution<int64_t> prompt(churn_.mean_tokens / 2, churn_.mean_tokens),
        output(1, churn_.mean_tokens / 2);
    next_prompt_ = prompt(random_);
    next_last_ = static_cast<size_t>(next_prompt_ + output(random_));
  }

  void Admit() {
    while (allocator_.num_used() + next_prompt_ <= max_used_) {
      running_.emplace_back();
      if (!allocator_.Allocate(next_prompt_, running_.back().slots)) return;
      running_.back().last_tokens = next_last_;
      Draw();
    }
  }

  // A token for every sequence that is not done. A sequence that finds no slot leaves too, as one
  // that is preempted would.
  void Step() {
    std::vector<RunningSequence> left;
    left.reserve(running_.size());
    for (RunningSequence& sequence : running_) {
      if (sequence.slots.size() < sequence.last_tokens && allocator_.Allocate(1, sequence.slots)) {
        left.push_back(std::move(sequence));
      } else {
        allocator_.Release(sequence.slots);
        ++departures_;
      }
    }
    running_ = std::move(left);
  }

  const KvChurn churn_;
  SlotAllocator allocator_;
  std::mt19937 random_;
  const int64_t max_used_;
  std::vector<RunningSequence> running_;
  int64_t departures_ = 0;
  int64_t next_prompt_ = 0;
  size_t next_last_ = 0;
};

}  // namespace

Result<std::vector<std::vector<TokenSlot>>> RunChurn(const KvChurn& churn) {
  ChurnRun run(churn);
  LAMINA_RETURN_IF_ERROR(run.Check());
  return run.Run();
}

std::vector<std::vector<TokenSlot>> FreshTables(const std::vector<std::vector<TokenSlot>>& tables) {
  std::vector<std::vector<TokenSlot>> fresh;
  TokenSlot next = 0;
  for (const std::vector<TokenSlot>& table : tables) {
    std::vector<TokenSlot>& slots = fresh.emplace_back(table.size());
    std::iota(slots.begin(), slots.end(), next);
    next += static_cast<TokenSlot>(table.size());
  }
  return fresh;
}

double MeanRunTokens(const std::vector<std::vector<TokenSlot>>& tables) {
  int64_t tokens = 0, runs = 0;
  for (const std::vector<TokenSlot>& table : tables) {
    tokens += static_cast<int64_t>(table.size());
    for (size_t i = 0; i < table.size(); ++i) runs += i == 0 || table[i] != table[i - 1] + 1;
  }
  return static_cast<double>(tokens) / static_cast<double>(runs);
}

}  // namespace lamina
