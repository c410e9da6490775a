#include "tiers/block_ring.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/host_memory.h"
#include "base/huge_memory.h"

namespace lamina {

namespace {

int64_t WholePages(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  return std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
}

}  // namespace

Result<std::unique_ptr<BlockRing>> BlockRing::Create(BlockRingOptions options,
                                                     std::unique_ptr<CopyEngine> engine) {
  std::unique_ptr<BlockRing> ring(new BlockRing(std::move(options), std::move(engine)));
  LAMINA_RETURN_IF_ERROR(ring->FillResidents());
  LAMINA_RETURN_IF_ERROR(ring->StartCopies());
  return ring;
}

BlockRing::BlockRing(BlockRingOptions options, std::unique_ptr<CopyEngine> engine)
    : options_(std::move(options)),
      engine_(std::move(engine)),
      blocks_(options_.block_bytes.size()),
      num_buffers_(options_.num_buffers) {
  SetOutside(options_.outside);
}

BlockRing::~BlockRing() {
  // Copies that are under way write there.
  Status ended;
  for (; !copying_.empty(); copying_.pop_front()) ended = engine_->FinishOldest();
  for (Block& block : blocks_) Free(block.memory);
  for (Memory& memory : spare_) Free(memory);
}

void BlockRing::SetOutside(std::vector<bool> outside) {
  FinishCopiesBack();  // they may be of what is given back here
  outside_ = std::move(outside);
  num_outside_ = static_cast<int>(std::ranges::count(outside_, true));
  largest_outside_ = 0;
  for (size_t i = 0; i < outside_.size(); ++i) {
    if (outside_[i])
      largest_outside_ = std::max(largest_outside_, options_.block_bytes[i]);
    else
      Trim(blocks_[i].memory, options_.block_bytes[i]);
  }
  // Their sizes were those of other blocks.
  for (Memory& memory : spare_) Free(memory);
  spare_.clear();
}

Result<BlockRing::Memory> BlockRing::Allocate(int64_t bytes) {
  Memory memory;
  memory.bytes = WholePages(bytes);
  if (options_.holds_bytes) {
    LAMINA_RETURN_IF_ERROR(CheckHostMemory(memory.bytes, "a block of a ring"));
    memory.data = static_cast<std::byte*>(MapHuge(static_cast<size_t>(memory.bytes)));
    if (memory.data == nullptr)
      return OutOfSpace("the system refused " + std::to_string(memory.bytes) +
                        " bytes for a block");
  }
  memory_bytes_ += memory.bytes;
  return memory;
}

void BlockRing::Free(Memory& memory) {
  memory_bytes_ -= memory.bytes;
  UnmapHuge(memory.data, static_cast<size_t>(memory.bytes));
  memory = {};
}

void BlockRing::Trim(Memory& memory, int64_t bytes) {
  const int64_t needed = WholePages(bytes);
  if (memory.bytes <= needed) return;
  if (memory.data != nullptr)
    UnmapHuge(memory.data + needed, static_cast<size_t>(memory.bytes - needed));
  memory_bytes_ -= memory.bytes - needed;
  memory.bytes = needed;
}

Status BlockRing::FillResidents() {
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
    if (IsOutside(i)) continue;
    if (!options_.holds_bytes || options_.begins_empty) {  // it takes no time
      LAMINA_ASSIGN_OR_RETURN(At(i).memory, Allocate(options_.block_bytes[static_cast<size_t>(i)]));
      At(i).is_here = true;
      continue;
    }
    LAMINA_RETURN_IF_ERROR(StartCopy(i));
    LAMINA_RETURN_IF_ERROR(FinishOldest());
  }
  return OkStatus();
}

void BlockRing::AddVisitor() {
  ++num_visitors_;
  num_buffers_ = std::max(num_buffers_, num_visitors_ + 1);
}

int BlockRing::NumInTurn() const {
  int count = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) count += outside_[i] && blocks_[i].memory.bytes > 0;
  return count;
}

Result<BlockRing::Memory> BlockRing::TakeBuffer(int block) {
  if (NumInTurn() >= num_buffers_)
    return OutOfSpace("all " + std::to_string(num_buffers_) + " buffers are in use");
  if (!spare_.empty()) {
    Memory memory = std::exchange(spare_.back(), {});
    spare_.pop_back();
    if (memory.bytes >= options_.block_bytes[static_cast<size_t>(block)]) return memory;
    FinishCopiesBack();
    Free(memory);
  }
  return Allocate(largest_outside_);
}

Status BlockRing::StartCopy(int block) {
  const int64_t bytes = options_.block_bytes[static_cast<size_t>(block)];
  if (!IsOutside(block)) {
    Result<Memory> memory = Allocate(bytes);
    if (memory.ok()) {
      At(block).memory = *memory;
    } else {
      if (last_entered_ < 0) return memory.status();
      ++stats_.num_without_memory;
      outside_[static_cast<size_t>(block)] = true;
      ++num_outside_;
      largest_outside_ = std::max(largest_outside_, bytes);
    }
  }
  if (IsOutside(block)) {
    LAMINA_ASSIGN_OR_RETURN(At(block).memory, TakeBuffer(block));
  }
  engine_->Start(block, At(block).memory.data);
  copying_.push_back({block});
  stats_.bytes_copied += bytes;
  return OkStatus();
}

Status BlockRing::StartCopies() {
  const int n = static_cast<int>(blocks_.size());
  for (int i = 1; i <= n; ++i) {
    const int block = (last_entered_ + i) % n;
    if (At(block).memory.bytes > 0) continue;
    if (IsOutside(block) && NumInTurn() >= num_buffers_) return OkStatus();
    LAMINA_RETURN_IF_ERROR(StartCopy(block));
  }
  return OkStatus();
}

Status BlockRing::FinishOldest() {
  LAMINA_RETURN_IF_ERROR(failed_back_);
  const Copy copy = copying_.front();
  copying_.pop_front();
  Status status = engine_->FinishOldest();
  if (copy.is_back) {
    // What was to go back is lost, so that nothing of the ring can be trusted any more.
    failed_back_ = status;
  } else if (status.ok()) {
    At(copy.block).is_here = true;
  } else {
    Drop(copy.block);
  }
  return status;
}

void BlockRing::FinishCopiesBack() {
  while (std::ranges::any_of(copying_, &Copy::is_back)) {
    if (const Status status = FinishOldest(); !status.ok() && !failed_back_.ok()) return;
  }
}

void BlockRing::Drop(int number) {
  Block& block = At(number);
  if (block.changed && block.is_here) {
    engine_->StartBack(number, block.memory.data);
    copying_.push_back({number, /*is_back=*/true});
    stats_.bytes_copied_back += options_.block_bytes[static_cast<size_t>(number)];
  } else if (options_.poison && block.memory.data != nullptr) {
    std::memset(block.memory.data, 0xff, static_cast<size_t>(block.memory.bytes));  // NaNs
  }
  block.is_here = block.changed = false;
  // The next copy into it is begun behind the one back.
  if (IsOutside(number) && NumInTurn() + static_cast<int>(spare_.size()) <= num_buffers_) {
    spare_.push_back(std::exchange(block.memory, {}));
    return;
  }
  FinishCopiesBack();
  Free(block.memory);
}

Status BlockRing::StartAnewWith(int block) {
  ++stats_.num_out_of_order;
  while (!copying_.empty()) LAMINA_RETURN_IF_ERROR(FinishOldest());
  for (int i = 0; i < static_cast<int>(blocks_.size()); ++i) {
    if (IsOutside(i) && At(i).memory.bytes > 0 && At(i).num_uses == 0) Drop(i);
  }
  return StartCopy(block);
}

Result<std::byte*> BlockRing::Enter(int number) {
  Block& block = At(number);
  if (IsOutside(number)) ++stats_.num_entered;
  if (block.memory.bytes == 0) LAMINA_RETURN_IF_ERROR(StartAnewWith(number));
  last_entered_ = number;
  if (!block.is_here) ++stats_.num_waits;
  while (!block.is_here) LAMINA_RETURN_IF_ERROR(FinishOldest());
  ++block.num_uses;
  // What cannot begin now is tried again when the next block is entered.
  Status begun = StartCopies();
  return block.memory.data;
}

void BlockRing::Leave(int number, bool changed) {
  At(number).changed |= changed;
  if (--At(number).num_uses > 0) return;
  // It stays where there are buffers for all.
  if (IsOutside(number) && num_outside_ > num_buffers_) Drop(number);
  Status begun = StartCopies();  // as in Enter
}

}  // namespace lamina
