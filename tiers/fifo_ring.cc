#include "tiers/fifo_ring.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/host_memory.h"
#include "base/huge_memory.h"

namespace lamina {

namespace {

Status CheckSlots(int num_blocks, int num_slots) {
  if (num_slots >= 2 && num_slots <= num_blocks) return OkStatus();
  return InvalidArgument(std::to_string(num_blocks) + " blocks in " + std::to_string(num_slots) +
                         " slots: there have to be at least 2, and no more than blocks");
}

}  // namespace

Result<std::unique_ptr<FifoRing>> FifoRing::Create(const FifoRingOptions& options,
                                                   std::unique_ptr<CopyEngine> in,
                                                   std::unique_ptr<CopyEngine> out) {
  LAMINA_RETURN_IF_ERROR(CheckSlots(options.num_blocks, options.num_slots));
  std::unique_ptr<FifoRing> ring(new FifoRing(options));
  ring->in_ = std::move(in);
  ring->out_ = std::move(out);
  ring->SetRunBytes(ring->RunBytes(options.num_slots));
  const bool changes = !options.run_bytes.empty();
  const int64_t span = options.block.span();
  if (options.holds_bytes) {
    BlockRuns used = options.block;
    used.run_bytes = ring->runs_.run_bytes;
    LAMINA_RETURN_IF_ERROR(
        CheckHostMemory(options.num_slots * used.bytes(), "the slots of a ring"));
    ring->memory_bytes_ = (changes ? options.num_blocks : options.num_slots) * span;
    const auto bytes = static_cast<size_t>(ring->memory_bytes_);
    // Where runs end anywhere, huge pages would reach behind them.
    ring->memory_ = static_cast<std::byte*>(changes ? MapSparse(bytes) : MapHuge(bytes));
    if (ring->memory_ == nullptr)
      return OutOfSpace("the system refused " + std::to_string(bytes) + " bytes for a ring");
  }
  for (int i = 0; i < options.num_blocks; ++i) {
    std::byte* const slot = ring->memory_ == nullptr ? nullptr : ring->memory_ + i * span;
    if (i < options.num_slots) {
      ring->At(i).where = Where::kInside;
      ring->At(i).memory = slot;
    } else if (changes) {
      ring->unused_.push_back(slot);
    }
  }
  return ring;
}

FifoRing::~FifoRing() {
  // Copies that are under way read and write there.
  Status ended;
  if (coming_) ended = in_->FinishOldest();
  if (going_) ended = out_->FinishOldest();
  in_.reset();
  out_.reset();
  UnmapHuge(memory_, static_cast<size_t>(memory_bytes_));
}

Status FifoRing::SetSlots(int num_slots) {
  LAMINA_RETURN_IF_ERROR(CheckSlots(options_.num_blocks, num_slots));
  wanted_slots_ = num_slots;
  if (num_slots > slots_in_effect_) {
    // They are as long as they were when they began.
    if (coming_) LAMINA_RETURN_IF_ERROR(FinishIn());
    if (going_) LAMINA_RETURN_IF_ERROR(FinishOut());
    SetRunBytes(RunBytes(num_slots));
    slots_in_effect_ = num_slots;
  }
  for (; num_slots_ < wanted_slots_; ++num_slots_) {
    free_.push_back(unused_.back());
    unused_.pop_back();
  }
  while (num_slots_ > wanted_slots_ && !free_.empty()) {
    std::byte* const slot = free_.back();
    free_.pop_back();
    Free(slot);
  }
  Settle();
  return OkStatus();
}

void FifoRing::Settle() {
  if (num_slots_ != wanted_slots_ || slots_in_effect_ == wanted_slots_) return;
  slots_in_effect_ = wanted_slots_;
  SetRunBytes(RunBytes(wanted_slots_));
}

void FifoRing::SetRunBytes(int64_t run_bytes) {
  runs_.run_bytes = run_bytes;
  in_->SetRuns(runs_);
  out_->SetRuns(runs_);
  for (const Block& block : blocks_) Trim(block.memory);
  for (std::byte* const slot : free_) Trim(slot);
}

int64_t FifoRing::RunBytes(int num_slots) const {
  return options_.run_bytes.empty() ? options_.block.run_bytes
                                    : options_.run_bytes[static_cast<size_t>(num_slots)];
}

void FifoRing::Trim(std::byte* slot) const {
  const int64_t rest = options_.block.run_bytes - runs_.run_bytes;
  for (int64_t run = 0; slot != nullptr && rest > 0 && run < runs_.num_runs; ++run)
    ReleasePages(slot + run * runs_.stride + runs_.run_bytes, static_cast<size_t>(rest));
}

void FifoRing::Free(std::byte* slot) {
  if (num_slots_ <= wanted_slots_) return free_.push_back(slot);
  --num_slots_;
  unused_.push_back(slot);
  if (slot != nullptr) ReleasePages(slot, static_cast<size_t>(options_.block.span()));
  Settle();
}

double FifoRing::seconds_per_block() const {
  return std::max(in_->seconds_per_byte(), out_->seconds_per_byte()) *
         static_cast<double>(runs_.bytes());
}

Status FifoRing::FinishIn() {
  Block& block = At(*std::exchange(coming_, {}));
  LAMINA_RETURN_IF_ERROR(in_->FinishOldest());
  block.where = Where::kInside;
  return OkStatus();
}

Status FifoRing::FinishOut() {
  Block& block = At(*std::exchange(going_, {}));
  LAMINA_RETURN_IF_ERROR(out_->FinishOldest());
  block.where = Where::kOutside;
  if (options_.poison && block.memory != nullptr) Poison(block.memory);
  Free(std::exchange(block.memory, nullptr));
  return OkStatus();
}

void FifoRing::Poison(std::byte* slot) const {
  for (int64_t run = 0; run < runs_.num_runs; ++run)
    std::memset(slot + run * runs_.stride, 0xff, static_cast<size_t>(runs_.run_bytes));  // NaNs
}

Status FifoRing::Poll() {
  if (coming_ && in_->OldestIsDone()) LAMINA_RETURN_IF_ERROR(FinishIn());
  if (going_ && out_->OldestIsDone()) LAMINA_RETURN_IF_ERROR(FinishOut());
  return OkStatus();
}

void FifoRing::StartIn(int number) {
  Block& block = At(number);
  block.memory = free_.back();
  free_.pop_back();
  block.where = Where::kComing;
  coming_ = number;
  in_->Start(number, block.memory);
  stats_.bytes_copied += runs_.bytes();
}

void FifoRing::StartOut(int number) {
  Block& block = At(number);
  block.where = Where::kGoing;
  going_ = number;
  out_->StartBack(number, block.memory);
  stats_.bytes_copied_back += runs_.bytes();
}

std::optional<int> FifoRing::Coldest(int block) const {
  for (int after = options_.num_blocks - 1; after > 0; --after) {
    const int candidate = (block + after) % options_.num_blocks;
    if (At(candidate).where == Where::kInside && At(candidate).num_uses == 0) return candidate;
  }
  return std::nullopt;
}

void FifoRing::Decide(int block) {
  std::optional<int> hottest;  // of those outside
  int until = options_.num_blocks;
  for (int after = 0; after < options_.num_blocks && !hottest; ++after) {
    const int candidate = (block + after) % options_.num_blocks;
    if (At(candidate).where == Where::kOutside) {
      hottest = candidate;
      until = after;
    }
  }
  if (hottest && !coming_ && !free_.empty()) StartIn(*hottest);
  if (going_) return;
  const std::optional<int> coldest = Coldest(block);
  if (!coldest) return;
  if (num_slots_ > wanted_slots_) return StartOut(*coldest);
  // The next one that comes has room already. If one went all the same, free slots would never be
  // used, as there are after the number of slots has grown.
  if (!hottest || !free_.empty()) return;
  const int after = (*coldest - block + options_.num_blocks) % options_.num_blocks;
  if (until < after) StartOut(*coldest);
}

Status FifoRing::BringAtOnce(int block) {
  if (At(block).where == Where::kGoing) LAMINA_RETURN_IF_ERROR(FinishOut());
  if (At(block).where == Where::kOutside) {
    ++stats_.num_out_of_order;
    if (coming_) LAMINA_RETURN_IF_ERROR(FinishIn());
    // Several, if there are to be fewer slots.
    while (free_.empty()) {
      if (!going_) {
        const std::optional<int> coldest = Coldest(block);
        if (!coldest) return OutOfSpace("all slots of the ring are in use");
        StartOut(*coldest);
      }
      LAMINA_RETURN_IF_ERROR(FinishOut());
    }
    StartIn(block);
  }
  return FinishIn();
}

Result<std::byte*> FifoRing::Enter(int number) {
  ++stats_.num_entered;
  LAMINA_RETURN_IF_ERROR(Poll());
  Decide(number);
  Block& block = At(number);
  if (block.where != Where::kInside) {
    ++stats_.num_waits;
    LAMINA_RETURN_IF_ERROR(BringAtOnce(number));
  }
  ++block.num_uses;
  return block.memory;
}

void FifoRing::Leave(int number, bool) { --At(number).num_uses; }

}  // namespace lamina
