#include "kernels/cuda/host/staged_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/log.h"

namespace lamina::cuda {
namespace {

// The size of each segment. At 25 GB/s a copy of so much takes 160 us, against some 10 us to start
// one.
constexpr size_t kSegmentBytes = size_t{4} << 20;
constexpr size_t kAlignment = 256;

size_t Align(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

void RequireOk(const Status& status, int device) {
  if (status.ok()) return;
  LAMINA_LOG_ERROR("cuda:{} failed, and this process ends: {}", device, status.ToString());
  std::abort();
}

void GrowTo(size_t bytes, StagedStream& stream, DeviceBuffer& buffer) {
  if (buffer.size_bytes() >= bytes) return;
  stream.LetGo(buffer);
  // A quarter more than is needed, so that a size that grows slowly does not allocate every time.
  Result<DeviceBuffer> larger = DeviceBuffer::Create(Align(bytes + bytes / 4));
  RequireOk(larger.status(), stream.device());
  buffer = std::move(*larger);
}

Result<std::unique_ptr<StagedStream>> StagedStream::Create(int device) {
  LAMINA_RETURN_IF_ERROR(UseDevice(device));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, Stream::Create());
  std::unique_ptr<StagedStream> staged(new StagedStream(device, std::move(stream)));
  for (Segment& segment : staged->segments_) {
    LAMINA_ASSIGN_OR_RETURN(segment.sent, Event::Create());
  }
  LAMINA_RETURN_IF_ERROR(staged->Grow(kSegmentBytes));
  return staged;
}

StagedStream::~StagedStream() { (void)stream_->Synchronize(); }

// Freed only when the device has done all that uses it, and before the larger one is allocated,
// which may need its memory.
template <typename Buffer>
void StagedStream::LetGo(Buffer& buffer) {
  if (buffer.size_bytes() == 0) return;
  if (!keeps_outgrown_) {
    Finish();
    buffer = Buffer();
  } else if constexpr (std::is_same_v<Buffer, DeviceBuffer>) {
    outgrown_.push_back(std::exchange(buffer, Buffer()));
  } else {
    outgrown_pinned_.push_back(std::exchange(buffer, Buffer()));
  }
}

Status StagedStream::Grow(size_t segment_bytes) {
  for (Segment& segment : segments_) {
    LetGo(segment.memory);
    LAMINA_ASSIGN_OR_RETURN(segment.memory, PinnedBuffer::Create(segment_bytes));
    segment.used = 0;
  }
  return OkStatus();
}

void StagedStream::Enter() { RequireOk(UseDevice(device_), device_); }

std::byte* StagedStream::Take(size_t bytes) {
  if (bytes > segments_[current_].memory.size_bytes()) RequireOk(Grow(Align(bytes)), device_);
  if (segments_[current_].used + bytes > segments_[current_].memory.size_bytes()) {
    // Go on with the next segment, when the device has copied what was in it.
    segments_[current_].sent->Record(*stream_);
    current_ = (current_ + 1) % segments_.size();
    if (segments_[current_].used > 0) RequireOk(segments_[current_].sent->Wait(), device_);
    segments_[current_].used = 0;
  }
  std::byte* const taken = segments_[current_].memory.as<std::byte>() + segments_[current_].used;
  segments_[current_].used += Align(bytes);
  return taken;
}

void StagedStream::Upload(const std::byte* taken, size_t bytes, void* device) {
  CopyToDevice(device, taken, bytes, *stream_);
}

void StagedStream::Copy(const void* host, size_t bytes, void* device) {
  const auto* const from = static_cast<const std::byte*>(host);
  for (size_t done = 0; done < bytes;) {
    const size_t piece = std::min(bytes - done, kSegmentBytes);
    std::byte* const taken = Take(piece);
    std::memcpy(taken, from + done, piece);
    Upload(taken, piece, static_cast<std::byte*>(device) + done);
    done += piece;
  }
}

const std::byte* StagedStream::Fetch(const void* device, size_t bytes) {
  // The first Fetch after a Finish: nobody uses what was fetched before. If that took several
  // buffers, one that has room for all takes their place, so that a step like the last one finds
  // enough.
  if (finished_) {
    size_t total = 0;
    for (const PinnedBuffer& buffer : fetched_) total += buffer.size_bytes();
    if (fetched_.size() > 1) {
      for (PinnedBuffer& buffer : fetched_) LetGo(buffer);
      fetched_.clear();
      Result<PinnedBuffer> one = PinnedBuffer::Create(total);
      RequireOk(one.status(), device_);
      fetched_.push_back(std::move(*one));
    }
    fetched_used_ = 0;
    finished_ = false;
  }
  if (fetched_.empty() || fetched_used_ + bytes > fetched_.back().size_bytes()) {
    Result<PinnedBuffer> more = PinnedBuffer::Create(std::max(Align(bytes), kSegmentBytes));
    RequireOk(more.status(), device_);
    fetched_.push_back(std::move(*more));
    fetched_used_ = 0;
  }
  std::byte* const to = fetched_.back().as<std::byte>() + fetched_used_;
  fetched_used_ += Align(bytes);
  CopyToHost(to, device, bytes, *stream_);
  return to;
}

Status StagedStream::Synchronize() {
  finished_ = true;
  return stream_->Synchronize();
}

void StagedStream::Finish() { RequireOk(Synchronize(), device_); }

}  // namespace lamina::cuda
