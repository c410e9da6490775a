#include "kernels/cuda/host/pinned_ring.h"

#include <algorithm>
#include <utility>

#include "base/host_memory.h"

namespace lamina::cuda {

Result<std::unique_ptr<PinnedRing>> PinnedRing::Create(PinnedRingOptions options, Stream& stream) {
  std::unique_ptr<PinnedRing> ring(new PinnedRing(std::move(options), stream));
  LAMINA_RETURN_IF_ERROR(ring->Allocate());
  ring->SetOutside(std::vector<bool>(ring->homes_.size(), true));
  return ring;
}

Status PinnedRing::Allocate() {
  for (const int64_t bytes : options_.block_bytes) {
    bytes_outside_ += bytes;
    largest_ = std::max(largest_, (bytes + 255) / 256 * 256);  // buffers are aligned to 256 bytes
  }
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(bytes_outside_, "what lies outside the GPU's memory"));
  for (const int64_t bytes : options_.block_bytes) {
    LAMINA_ASSIGN_OR_RETURN(PinnedBuffer home, PinnedBuffer::Create(static_cast<size_t>(bytes)));
    homes_.push_back(std::move(home));
  }
  LAMINA_ASSIGN_OR_RETURN(
      memory_, DeviceBuffer::Create(static_cast<size_t>(largest_ * options_.num_buffers)));
  buffers_.resize(static_cast<size_t>(options_.num_buffers));
  for (Buffer& buffer : buffers_) {
    LAMINA_ASSIGN_OR_RETURN(buffer.free, Event::Create());
    LAMINA_ASSIGN_OR_RETURN(buffer.arrived, Event::Create());
  }
  LAMINA_ASSIGN_OR_RETURN(copies_, Stream::Create());
  return OkStatus();
}

PinnedRing::~PinnedRing() {
  if (copies_ != nullptr) (void)copies_->Synchronize();
}

void PinnedRing::SetOutside(const std::vector<bool>& outside) {
  // Where none lie outside, all buffers are for those that stay.
  const auto shared = static_cast<size_t>(
      std::min<int64_t>(options_.num_shared, std::ranges::count(outside, true)));
  std::vector<bool> is_taken(buffers_.size());
  std::vector<size_t> homeless;
  buffer_of_.resize(homes_.size());
  size_t turn = 0;
  for (size_t block = 0; block < homes_.size(); ++block) {
    size_t& buffer = buffer_of_[block];
    if (outside[block]) {
      buffer = turn++ % shared;
    } else if (buffer >= shared && !is_taken[buffer]) {
      is_taken[buffer] = true;  // it stays where it was
    } else {
      homeless.push_back(block);
    }
  }
  size_t free = shared;
  for (const size_t block : homeless) {
    while (is_taken[free]) ++free;
    buffer_of_[block] = free++;
  }
  next_.resize(homes_.size());
  for (size_t block = 0; block < homes_.size(); ++block) {
    size_t& next = next_[block] = block;
    do next = (next + 1) % homes_.size();
    while (buffer_of_[next] != buffer_of_[block]);
  }
}

void PinnedRing::StartCopy(size_t block) {
  Buffer& buffer = BufferOf(block);
  buffer.free->Record(stream_);
  buffer.free->HoldBack(*copies_);
  if (options_.poison) FillOnDevice(Place(block), 0xff, static_cast<size_t>(largest_), *copies_);
  const int64_t bytes = options_.block_bytes[block];
  CopyToDevice(Place(block), Home(block), static_cast<size_t>(bytes), *copies_);
  buffer.arrived->Record(*copies_);
  buffer.block = static_cast<int64_t>(block);
  bytes_copied_ += bytes;
  // Nobody waits for this stream by itself.
  if (Status failed = copies_->TakeFailure(); !failed.ok()) stream_.Fail(std::move(failed));
}

void PinnedRing::Enter(size_t block) {
  Buffer& buffer = BufferOf(block);
  if (buffer.block != static_cast<int64_t>(block)) {
    num_out_of_order_ += buffer.block >= 0;
    StartCopy(block);
  }
  buffer.arrived->HoldBack(stream_);
}

void PinnedRing::Leave(size_t block) {
  if (next_[block] != block) StartCopy(next_[block]);
}

bool PinnedRing::BeginWrite(size_t block) {
  Buffer& buffer = BufferOf(block);
  if (buffer.block != static_cast<int64_t>(block)) return false;
  buffer.arrived->HoldBack(stream_);
  return true;
}

}  // namespace lamina::cuda
