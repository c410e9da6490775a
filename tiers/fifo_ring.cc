#include "tiers/fifo_ring.h"

#include <cstring>
#include <string>
#include <utility>

#include "base/host_memory.h"
#include "base/huge_memory.h"

namespace lamina {

Result<std::unique_ptr<FifoRing>> FifoRing::Create(const FifoRingOptions& options,
                                                   std::unique_ptr<CopyEngine> in,
                                                   std::unique_ptr<CopyEngine> out) {
  if (options.num_slots < 2 || options.num_slots >= options.num_blocks) {
    return InvalidArgument(std::to_string(options.num_blocks) + " blocks in " +
                           std::to_string(options.num_slots) +
                           " slots: there have to be at least 2, and fewer than blocks");
  }
  std::unique_ptr<FifoRing> ring(new FifoRing(options));
  ring->in_ = std::move(in);
  ring->out_ = std::move(out);
  ring->blocks_.resize(static_cast<size_t>(options.num_blocks));
  const int64_t bytes = options.num_slots * options.block_bytes;
  if (options.holds_bytes) {
    LAMINA_RETURN_IF_ERROR(CheckHostMemory(bytes, "the slots of a ring"));
    ring->memory_ = static_cast<std::byte*>(MapHuge(static_cast<size_t>(bytes)));
    if (ring->memory_ == nullptr)
      return OutOfSpace("the system refused " + std::to_string(bytes) + " bytes for a ring");
  }
  for (int block = 0; block < options.num_slots; ++block) {
    ring->At(block).where = Where::kInside;
    if (ring->memory_ != nullptr)
      ring->At(block).memory = ring->memory_ + block * options.block_bytes;
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
  UnmapHuge(memory_, static_cast<size_t>(options_.num_slots * options_.block_bytes));
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
  if (options_.poison && block.memory != nullptr)
    std::memset(block.memory, 0xff, static_cast<size_t>(options_.block_bytes));  // NaNs
  free_.push_back(std::exchange(block.memory, nullptr));
  return OkStatus();
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
  stats_.bytes_copied += options_.block_bytes;
}

void FifoRing::StartOut(int number) {
  Block& block = At(number);
  block.where = Where::kGoing;
  going_ = number;
  out_->StartBack(number, block.memory);
  stats_.bytes_copied_back += options_.block_bytes;
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
  if (!coldest || !hottest) return;
  const int after = (*coldest - block + options_.num_blocks) % options_.num_blocks;
  if (until < after) StartOut(*coldest);
}

Status FifoRing::BringAtOnce(int block) {
  if (At(block).where == Where::kGoing) LAMINA_RETURN_IF_ERROR(FinishOut());
  if (At(block).where == Where::kOutside) {
    ++stats_.num_out_of_order;
    if (coming_) LAMINA_RETURN_IF_ERROR(FinishIn());
    if (free_.empty() && !going_) {
      const std::optional<int> coldest = Coldest(block);
      if (!coldest) return OutOfSpace("all slots of the ring are in use");
      StartOut(*coldest);
    }
    if (free_.empty()) LAMINA_RETURN_IF_ERROR(FinishOut());
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
