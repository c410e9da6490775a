#include "compute_node/cuda/cuda_link.h"

#include <algorithm>
#include <string>
#include <utility>

namespace lamina {

Status CudaLink::Lane::Allocate() {
  LAMINA_ASSIGN_OR_RETURN(ahead_, cuda::Waits::Create(link_.stream()));
  LAMINA_ASSIGN_OR_RETURN(beside_, cuda::Waits::Create(link_.stream()));
  LAMINA_ASSIGN_OR_RETURN(beside_stream_, cuda::Stream::Create());
  LAMINA_ASSIGN_OR_RETURN(fetched_, cuda::PinnedBuffer::Create(link_.wire_.reply_area_bytes()));
  LAMINA_ASSIGN_OR_RETURN(is_fetched_, cuda::Event::Create());
  return OkStatus();
}

void CudaLink::Lane::Post(uint64_t about, std::span<const PackedParts> packed) {
  link_.RunAhead();
  const size_t offset = link_.wire_.decode_offset(batch_);
  cuda::PeerWindow& window = *link_.peer_window_;
  link_.device_.PackOnDevice(packed, window.at(offset) + sizeof(cuda::Flag));
  size_t bytes = 0;
  for (const PackedParts& part : packed) bytes += static_cast<size_t>(part.num_bytes());
  window.Raise({batch_, offset, bytes}, {++number_, about}, *ahead_, link_.stream());
}

void CudaLink::Lane::Await(bool ahead) {
  awaits_in_ = ahead ? &link_.stream() : beside_stream_.get();
  cuda::Waits& waits = ahead ? *ahead_ : *beside_;
  waits.Await(reinterpret_cast<const cuda::Flag*>(reply()), number_, /*about=*/0, link_.limit_,
              *awaits_in_);
}

void CudaLink::Lane::Unpack(size_t offset, DType dtype, const RowParts& parts, float* value) {
  link_.device_.UnpackOnDevice(reply() + sizeof(cuda::Flag) + offset, dtype, parts, value);
}

void CudaLink::Lane::Fetch(size_t payload_bytes) {
  payload_bytes_ = std::max<size_t>(payload_bytes, WireShape::kMaxErrorBytes);
  cuda::CopyToHost(fetched_.data(), reply(), sizeof(cuda::Flag) + payload_bytes_, *awaits_in_);
  is_fetched_->Record(*awaits_in_);
  cuda::RequireOk(awaits_in_->TakeFailure(), link_.device_.engine().staged().device());
}

Status CudaLink::Lane::outcome() const {
  const cuda::Flag& flag = *fetched_.as<cuda::Flag>();
  // Work behind a wait that was given up has run on whatever the memory held, so the outcome is an
  // error even if the reply has come since.
  const bool gave_up = ahead_->log().gave_up || beside_->log().gave_up;
  if (gave_up || flag.number < number_) return TimedOut("no reply came");
  if (flag.status == 0) return OkStatus();
  const std::span<const std::byte> text =
      payload().first(std::min<size_t>(flag.detail, WireShape::kMaxErrorBytes));
  return {static_cast<StatusCode>(flag.status),
          std::string(reinterpret_cast<const char*>(text.data()), text.size())};
}

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
  for (int batch = 0; batch < wire.num_batches; ++batch) {
    link->lanes_.push_back(std::make_unique<Lane>(*link, batch));
    LAMINA_RETURN_IF_ERROR(link->lanes_.back()->Allocate());
  }
  return std::unique_ptr<DeviceLink>(std::move(link));
}

CudaLink::~CudaLink() {
  GiveUp();
  if (runs_ahead_) device_.engine().RunAhead(-1);
  device_.engine().staged().Enter();
  (void)device_.engine().staged().Synchronize();
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->Synchronize();
}

void CudaLink::GiveUp() {
  for (const std::unique_ptr<Lane>& lane : lanes_) lane->GiveUp();
}

int64_t CudaLink::waited_us() const {
  uint64_t ns = 0;
  for (const std::unique_ptr<Lane>& lane : lanes_) ns += lane->waited_ns();
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

void CudaLink::RunAhead() {
  if (runs_ahead_) return;
  runs_ahead_ = true;
  device_.engine().RunAhead(1);
  device_.engine().staged().KeepOutgrown();
}

Result<bool> CudaLink::Carry(Endpoint& memory_node) {
  return peer_window_->Carry([&](std::span<const std::byte> message, size_t offset) {
    return PostToDevice(memory_node, message, offset, 0);
  });
}

}  // namespace lamina
