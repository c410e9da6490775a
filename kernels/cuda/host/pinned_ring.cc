#include "kernels/cuda/host/pinned_ring.h"

#include <algorithm>
#include <utility>

#include "base/host_memory.h"

namespace lamina::cuda {

Result<std::unique_ptr<PinnedRing>> PinnedRing::Create(std::vector<int64_t> block_bytes,
                                                       int num_buffers, bool poison,
                                                       Stream& stream) {
  std::unique_ptr<PinnedRing> ring(new PinnedRing(std::move(block_bytes), poison, stream));
  LAMINA_RETURN_IF_ERROR(ring->Allocate(num_buffers));
  return ring;
}

Status PinnedRing::Allocate(int num_buffers) {
  for (const int64_t bytes : block_bytes_) {
    bytes_outside_ += bytes;
    largest_ = std::max(largest_, (bytes + 255) / 256 * 256);  // buffers are aligned to 256 bytes
  }
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(bytes_outside_, "what lies outside the GPU's memory"));
  for (const int64_t bytes : block_bytes_) {
    LAMINA_ASSIGN_OR_RETURN(PinnedBuffer home, PinnedBuffer::Create(static_cast<size_t>(bytes)));
    homes_.push_back(std::move(home));
  }
  LAMINA_ASSIGN_OR_RETURN(buffers_,
                          DeviceBuffer::Create(static_cast<size_t>(largest_ * num_buffers)));
  in_turn_.resize(static_cast<size_t>(num_buffers));
  for (Buffer& buffer : in_turn_) {
    LAMINA_ASSIGN_OR_RETURN(buffer.free, Event::Create());
    LAMINA_ASSIGN_OR_RETURN(buffer.arrived, Event::Create());
  }
  LAMINA_ASSIGN_OR_RETURN(copies_, Stream::Create());
  return OkStatus();
}

// A failure of the copies is one of the device, which the kernels' stream reports as well.
PinnedRing::~PinnedRing() {
  if (copies_ != nullptr) (void)copies_->Synchronize();
}

size_t PinnedRing::NextOf(size_t block) const {
  const size_t next = block + in_turn_.size();
  return next < block_bytes_.size() ? next : BufferOf(block);
}

void PinnedRing::StartCopy(size_t block) {
  Buffer& buffer = in_turn_[BufferOf(block)];
  buffer.free->Record(stream_);
  buffer.free->HoldBack(*copies_);
  if (poison_) FillOnDevice(Place(block), 0xff, static_cast<size_t>(largest_), *copies_);
  CopyToDevice(Place(block), Home(block), static_cast<size_t>(block_bytes_[block]), *copies_);
  buffer.arrived->Record(*copies_);
  buffer.block = static_cast<int64_t>(block);
  bytes_copied_ += block_bytes_[block];
}

void PinnedRing::Enter(size_t block) {
  Buffer& buffer = in_turn_[BufferOf(block)];
  if (buffer.block != static_cast<int64_t>(block)) {
    num_out_of_order_ += buffer.block >= 0;
    StartCopy(block);
  }
  buffer.arrived->HoldBack(stream_);
}

void PinnedRing::Leave(size_t block) {
  if (NextOf(block) != block) StartCopy(NextOf(block));
}

bool PinnedRing::BeginWrite(size_t block) {
  Buffer& buffer = in_turn_[BufferOf(block)];
  if (buffer.block != static_cast<int64_t>(block)) return false;
  buffer.arrived->HoldBack(stream_);
  return true;
}

}  // namespace lamina::cuda
