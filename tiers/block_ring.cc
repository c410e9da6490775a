#include "tiers/block_ring.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/host_memory.h"
#include "base/huge_memory.h"

namespace lamina {

std::vector<bool> OutsideByInterval(int num_blocks, int interval) {
  std::vector<bool> outside(static_cast<size_t>(num_blocks));
  for (int block = interval - 1; block < num_blocks; block += interval)
    outside[static_cast<size_t>(block)] = true;
  return outside;
}

Result<std::unique_ptr<BlockRing>> BlockRing::Create(BlockRingOptions options,
                                                     std::unique_ptr<CopyEngine> engine) {
  const auto num_outside = std::ranges::count(options.outside, true);
  if (num_outside <= options.num_buffers) {
    return InvalidArgument(
        std::to_string(num_outside) + " of " + std::to_string(options.block_bytes.size()) +
        " blocks would lie outside and take turns in " + std::to_string(options.num_buffers) +
        " buffers: use a smaller interval, fewer buffers, or leave none outside");
  }
  std::unique_ptr<BlockRing> ring(new BlockRing(std::move(options), std::move(engine)));
  LAMINA_RETURN_IF_ERROR(ring->FillResidents());
  LAMINA_RETURN_IF_ERROR(ring->AddBuffers(ring->options_.num_buffers));
  ring->next_ = ring->NextOutside(-1);
  ring->StartCopies();
  return ring;
}

BlockRing::BlockRing(BlockRingOptions options, std::unique_ptr<CopyEngine> engine)
    : options_(std::move(options)),
      engine_(std::move(engine)),
      residents_(options_.block_bytes.size()) {
  for (size_t i = 0; i < options_.outside.size(); ++i) {
    if (options_.outside[i]) largest_outside_ = std::max(largest_outside_, options_.block_bytes[i]);
  }
}

BlockRing::~BlockRing() {
  // Copies that are under way write there.
  Status ended;
  while (!copying_.empty()) ended = FinishOldest();
  for (const Memory& memory : residents_) UnmapHuge(memory.data, memory.bytes);
  for (const auto& buffer : buffers_) UnmapHuge(buffer->memory.data, buffer->memory.bytes);
}

Result<BlockRing::Memory> BlockRing::Allocate(int64_t bytes) {
  constexpr int64_t kPage = 4096;
  bytes = std::max(kPage, (bytes + kPage - 1) / kPage * kPage);
  Memory memory;
  if (!options_.holds_bytes) {
    memory_bytes_ += bytes;
    return memory;
  }
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(bytes, "a block of weights"));
  memory.bytes = static_cast<size_t>(bytes);
  memory.data = static_cast<std::byte*>(MapHuge(memory.bytes));
  if (memory.data == nullptr)
    return OutOfSpace("the system refused " + std::to_string(bytes) + " bytes for a block");
  memory_bytes_ += bytes;
  return memory;
}

Status BlockRing::FillResidents() {
  for (size_t i = 0; i < residents_.size(); ++i) {
    if (options_.outside[i]) continue;
    LAMINA_ASSIGN_OR_RETURN(residents_[i], Allocate(options_.block_bytes[i]));
    if (!options_.holds_bytes) continue;
    engine_->Start(static_cast<int>(i), residents_[i].data);
    LAMINA_RETURN_IF_ERROR(engine_->FinishOldest());
  }
  return OkStatus();
}

Status BlockRing::AddBuffers(int count) {
  for (int i = 0; i < count; ++i) {
    auto buffer = std::make_unique<Buffer>();
    LAMINA_ASSIGN_OR_RETURN(buffer->memory, Allocate(largest_outside_));
    buffers_.push_back(std::move(buffer));
  }
  return OkStatus();
}

Status BlockRing::AddVisitor() {
  const int missing = num_visitors_ + 2 - static_cast<int>(buffers_.size());
  LAMINA_RETURN_IF_ERROR(AddBuffers(std::max(0, missing)));
  ++num_visitors_;
  StartCopies();
  return OkStatus();
}

BlockRing::Buffer* BlockRing::BufferOf(int block) {
  for (const auto& buffer : buffers_) {
    if (buffer->block == block) return buffer.get();
  }
  return nullptr;
}

int BlockRing::NextOutside(int block) const {
  const int n = static_cast<int>(options_.outside.size());
  do {
    block = (block + 1) % n;
  } while (!options_.outside[static_cast<size_t>(block)]);
  return block;
}

void BlockRing::StartCopies() {
  for (const auto& buffer : buffers_) {
    // It is here already if all that lie outside have a buffer.
    if (buffer->block >= 0 || BufferOf(next_) != nullptr) continue;
    buffer->block = next_;
    buffer->is_here = false;
    engine_->Start(next_, buffer->memory.data);
    copying_.push_back(buffer.get());
    next_ = NextOutside(next_);
  }
}

Status BlockRing::FinishOldest() {
  Buffer& buffer = *copying_.front();
  copying_.pop_front();
  Status status = engine_->FinishOldest();
  if (status.ok())
    buffer.is_here = true;
  else
    buffer.block = -1;
  return status;
}

Status BlockRing::StartAnewWith(int block) {
  ++stats_.num_out_of_order;
  while (!copying_.empty()) LAMINA_RETURN_IF_ERROR(FinishOldest());
  for (const auto& buffer : buffers_) {
    if (buffer->num_uses == 0) buffer->block = -1;
  }
  next_ = block;
  StartCopies();
  return BufferOf(block) != nullptr
             ? OkStatus()
             : OutOfSpace("all " + std::to_string(buffers_.size()) + " buffers are in use");
}

Result<const std::byte*> BlockRing::Enter(int block) {
  const auto index = static_cast<size_t>(block);
  if (!options_.outside[index]) return residents_[index].data;
  ++stats_.num_entered;
  if (BufferOf(block) == nullptr) LAMINA_RETURN_IF_ERROR(StartAnewWith(block));
  while (!BufferOf(block)->is_here) LAMINA_RETURN_IF_ERROR(FinishOldest());
  Buffer& buffer = *BufferOf(block);
  ++buffer.num_uses;
  return buffer.memory.data;
}

void BlockRing::Leave(int block) {
  if (!options_.outside[static_cast<size_t>(block)]) return;
  Buffer& buffer = *BufferOf(block);
  if (--buffer.num_uses > 0) return;
  if (options_.poison) std::memset(buffer.memory.data, 0xff, buffer.memory.bytes);  // NaNs
  buffer.block = -1;
  StartCopies();
}

}  // namespace lamina
