#include "compute_node/cuda/cuda_link.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lamina {

Result<std::unique_ptr<DeviceLink>> CudaLink::Create(const WireShape& wire, Clock::duration limit,
                                                     CudaDevice& device) {
  std::unique_ptr<CudaLink> link(new CudaLink(wire, limit, device));
  cuda::StagedStream& staged = device.engine().staged();
  staged.Enter();
  LAMINA_ASSIGN_OR_RETURN(link->device_id_, cuda::IdOfDevice(staged.device()));
  LAMINA_ASSIGN_OR_RETURN(link->window_, cuda::SharedBuffer::Create(wire.compute_window_bytes() +
                                                                    wire.decode_areas_bytes()));
  cuda::FillOnDevice(link->window_->data(), 0, link->window_->size_bytes(), link->stream());
  LAMINA_RETURN_IF_ERROR(staged.Synchronize());
  link->batches_.resize(static_cast<size_t>(wire.num_batches));
  for (Batch& batch : link->batches_) {
    LAMINA_ASSIGN_OR_RETURN(batch.ahead, cuda::Waits::Create(link->stream()));
    LAMINA_ASSIGN_OR_RETURN(batch.beside, cuda::Waits::Create(link->stream()));
    LAMINA_ASSIGN_OR_RETURN(batch.beside_stream, cuda::Stream::Create());
    LAMINA_ASSIGN_OR_RETURN(batch.fetched, cuda::PinnedBuffer::Create(wire.reply_area_bytes()));
    LAMINA_ASSIGN_OR_RETURN(batch.is_fetched, cuda::Event::Create());
  }
  return std::unique_ptr<DeviceLink>(std::move(link));
}

CudaLink::~CudaLink() {
  GiveUp();
  if (runs_ahead_) device_.engine().RunAhead(-1);
  device_.engine().staged().Enter();
  (void)device_.engine().staged().Synchronize();
  for (const Batch& batch : batches_) {
    if (batch.beside_stream != nullptr) (void)batch.beside_stream->Synchronize();
  }
}

void CudaLink::GiveUp() {
  for (const Batch& batch : batches_) {
    if (batch.ahead != nullptr) batch.ahead->GiveUp();
    if (batch.beside != nullptr) batch.beside->GiveUp();
  }
}

int64_t CudaLink::waited_us() const {
  uint64_t ns = 0;
  for (const Batch& batch : batches_)
    ns += batch.ahead->log().waited_ns + batch.beside->log().waited_ns;
  return static_cast<int64_t>(ns / 1000);
}

DeviceWindow CudaLink::window() const {
  return {window_->descriptor(), window_->size_bytes(), device_id_,
          window_->reached_by_nics() ? window_->data() : nullptr, window_->dma_buf()};
}

Status CudaLink::Join(const DeviceWindow& peer, bool in_turns) {
  device_.engine().staged().Enter();
  if (peer.bytes < wire_.decode_areas_bytes())
    return InvalidArgument("the memory node's device window has only " +
                           std::to_string(peer.bytes) + " bytes");
  by_posts_ = peer.descriptor < 0;
  if (!by_posts_ && peer.device == device_id_ && !in_turns) {
    LAMINA_ASSIGN_OR_RETURN(const bool beside_each_other,
                            cuda::ProcessesShareDevice(device_.engine().staged().device()));
    if (!beside_each_other) {
      return Unimplemented(
          "both nodes' processes take turns on one GPU, for milliseconds each; with MPS "
          "(nvidia-cuda-mps-control -d) they "
          "run beside each other");
    }
  }
  LAMINA_ASSIGN_OR_RETURN(
      peer_window_, by_posts_
                        ? cuda::PeerWindow::ByPosts(window_->data() + wire_.compute_window_bytes(),
                                                    wire_.num_batches)
                        : cuda::PeerWindow::Map(peer.descriptor, peer.bytes));
  return OkStatus();
}

void CudaLink::Post(int number, uint64_t about, std::span<const PackedParts> packed) {
  if (!runs_ahead_) {
    runs_ahead_ = true;
    device_.engine().RunAhead(1);
    device_.engine().staged().KeepOutgrown();
  }
  Batch& batch = batches_[static_cast<size_t>(number)];
  const size_t offset = wire_.decode_offset(number);
  device_.PackOnDevice(packed, peer_window_->at(offset) + sizeof(cuda::Flag));
  size_t bytes = 0;
  for (const PackedParts& part : packed)
    bytes += static_cast<size_t>(part.parts.num_elements()) * ElementSize(part.dtype);
  peer_window_->Raise(number, offset, bytes, {++batch.number, about}, *batch.ahead, stream());
}

Result<bool> CudaLink::Carry(Endpoint& memory_node) {
  return peer_window_->Carry([&](std::span<const std::byte> message, size_t offset) {
    return PostToDevice(memory_node, message, offset, 0);
  });
}

void CudaLink::Await(int number, bool ahead) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  batch.awaits_in = ahead ? &stream() : batch.beside_stream.get();
  cuda::Waits& waits = ahead ? *batch.ahead : *batch.beside;
  waits.Await(reinterpret_cast<const cuda::Flag*>(Reply(number)), batch.number, /*about=*/0, limit_,
              *batch.awaits_in);
}

void CudaLink::Unpack(int batch, size_t offset, DType dtype, const RowParts& parts, float* value) {
  device_.UnpackOnDevice(Reply(batch) + sizeof(cuda::Flag) + offset, dtype, parts, value);
}

void CudaLink::Fetch(int number, size_t payload_bytes) {
  Batch& batch = batches_[static_cast<size_t>(number)];
  batch.payload_bytes = std::max<size_t>(payload_bytes, WireShape::kMaxErrorBytes);
  cuda::CopyToHost(batch.fetched.data(), Reply(number), sizeof(cuda::Flag) + batch.payload_bytes,
                   *batch.awaits_in);
  batch.is_fetched->Record(*batch.awaits_in);
  cuda::RequireOk(batch.awaits_in->TakeFailure(), device_.engine().staged().device());
}

bool CudaLink::fetched(int batch) {
  return batches_[static_cast<size_t>(batch)].is_fetched->Reached();
}

Status CudaLink::outcome(int number) {
  const Batch& batch = batches_[static_cast<size_t>(number)];
  const cuda::Flag& flag = *batch.fetched.as<cuda::Flag>();
  // Work behind a wait that was given up has run on whatever the memory held, so the outcome is an
  // error even if the reply has come since.
  if (batch.gave_up() || flag.number < batch.number) return TimedOut("no reply came");
  if (flag.status == 0) return OkStatus();
  const std::span<const std::byte> text =
      payload(number).first(std::min<size_t>(flag.detail, WireShape::kMaxErrorBytes));
  return {static_cast<StatusCode>(flag.status),
          std::string(reinterpret_cast<const char*>(text.data()), text.size())};
}

std::span<const std::byte> CudaLink::payload(int number) {
  const Batch& batch = batches_[static_cast<size_t>(number)];
  return {batch.fetched.as<std::byte>() + sizeof(cuda::Flag), batch.payload_bytes};
}

}  // namespace lamina
