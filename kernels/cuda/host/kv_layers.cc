#include "kernels/cuda/host/kv_layers.h"

#include <algorithm>
#include <utility>

#include "base/host_memory.h"
#include "base/units.h"

namespace lamina::cuda {

Result<std::unique_ptr<KvLayers>> KvLayers::Create(const KvShape& shape, int64_t capacity_tokens,
                                                   const KvOutside& outside, StagedStream& stream) {
  std::unique_ptr<KvLayers> layers(new KvLayers(shape, capacity_tokens));
  LAMINA_RETURN_IF_ERROR(layers->Allocate(outside, stream));
  return layers;
}

int64_t KvLayers::Sort(const KvOutside& outside) {
  // A product beyond 64 bits is refused like any other size that the device does not have.
  const int64_t layer_bytes =
      SaturatedProduct(shape_.bytes_per_token(), capacity_tokens_) / shape_.num_layers;
  const auto num_on_host =
      std::min<int64_t>((outside.host_bytes + layer_bytes - 1) / layer_bytes, shape_.num_layers);
  int64_t in_turns = 0;
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    if (outside.in_turns.any() && outside.in_turns.outside[static_cast<size_t>(layer)])
      where_.push_back({Where::Kind::kInTurns, in_turns++});
    else if (layer >= shape_.num_layers - num_on_host)
      where_.push_back({Where::Kind::kHost, host_layers_++});
    else
      where_.push_back({Where::Kind::kDevice, device_layers_++});
  }
  return layer_bytes;
}

std::string KvLayers::TooLarge(const std::string& device, int64_t device_bytes,
                               int64_t free_bytes) const {
  const int64_t bytes = SaturatedProduct(shape_.bytes_per_token(), capacity_tokens_);
  return device + " has " + FormatGigabytes(free_bytes) + " free, and " +
         std::to_string(capacity_tokens_) + " tokens of " +
         std::to_string(shape_.bytes_per_token()) + " bytes of KV need " + FormatGigabytes(bytes) +
         (device_bytes < bytes ? ", " + FormatGigabytes(device_bytes) + " of them there" : "") +
         "; use fewer tokens, more host memory, or another GPU";
}

Status KvLayers::Allocate(const KvOutside& outside, StagedStream& stream) {
  const int64_t layer_bytes = Sort(outside);
  const int64_t device_bytes = device_layers_ * layer_bytes,
                buffer_bytes = SaturatedProduct(outside.in_turns.num_buffers, layer_bytes);
  LAMINA_ASSIGN_OR_RETURN(const DeviceInfo info, DescribeDevice(stream.device()));
  if (device_bytes > info.free_bytes || buffer_bytes > info.free_bytes - device_bytes) {
    return OutOfSpace(TooLarge("cuda:" + std::to_string(stream.device()) + " (" + info.name + ")",
                               device_bytes + buffer_bytes, info.free_bytes));
  }
  LAMINA_RETURN_IF_ERROR(CheckHostMemory(host_layers_ * layer_bytes, "the KV cache's last layers"));
  LAMINA_ASSIGN_OR_RETURN(device_, DeviceBuffer::Create(static_cast<size_t>(device_bytes)));
  LAMINA_ASSIGN_OR_RETURN(host_,
                          PinnedBuffer::Create(static_cast<size_t>(host_layers_ * layer_bytes)));
  const int64_t in_turns = shape_.num_layers - device_layers_ - host_layers_;
  if (in_turns == 0) return OkStatus();
  PinnedRingOptions options;
  options.block_bytes.assign(static_cast<size_t>(in_turns), layer_bytes);
  options.num_shared = options.num_buffers = outside.in_turns.num_buffers;
  options.poison = outside.in_turns.poison;
  LAMINA_ASSIGN_OR_RETURN(ring_, PinnedRing::Create(std::move(options), stream.stream()));
  return OkStatus();
}

KvPlace KvLayers::PlaceIn(std::byte* memory, int64_t num_layers, int64_t index) const {
  const int64_t scales_of_layer = int64_t{2} * shape_.num_kv_heads * capacity_tokens_,
                half = scales_of_layer / 2 * shape_.head_dim *
                       static_cast<int64_t>(ElementSize(shape_.dtype));  // bytes of K, or of V
  std::byte* const k = memory + 2 * index * half;
  KvPlace place = {.k = k,
                   .v = k + half,
                   .head_stride = capacity_tokens_ * shape_.head_dim,
                   .slot_stride = shape_.head_dim,
                   .dtype = shape_.dtype};
  if (HasScales(shape_.dtype)) {
    auto* const scales = reinterpret_cast<float*>(memory + 2 * num_layers * half);
    place.k_scales = scales + index * scales_of_layer;
    place.v_scales = place.k_scales + 1;
    place.scale_head_stride = 2 * capacity_tokens_;
    place.scale_slot_stride = 2;
  }
  return place;
}

KvPlace KvLayers::Place(int layer) const {
  const auto& [kind, index] = where_[static_cast<size_t>(layer)];
  switch (kind) {
    case Where::Kind::kDevice: return PlaceIn(device_.as<std::byte>(), device_layers_, index);
    case Where::Kind::kHost: return PlaceIn(host_.as<std::byte>(), host_layers_, index);
    case Where::Kind::kInTurns: break;
  }
  return PlaceIn(ring_->Place(static_cast<size_t>(index)), 1, 0);
}

// A layer is left when another one is used, and not before: it may be attended to in two parts.
KvPlace KvLayers::Use(int layer) {
  const auto enters = [&](int number) {
    return number >= 0 && where_[static_cast<size_t>(number)].kind == Where::Kind::kInTurns;
  };
  const auto block = [&](int number) {
    return static_cast<size_t>(where_[static_cast<size_t>(number)].index);
  };
  if (const int before = std::exchange(used_, layer); before != layer) {
    if (enters(before)) ring_->Leave(block(before));
    if (enters(layer)) ring_->Enter(block(layer));
  }
  return Place(layer);
}

std::vector<KvPlace> KvLayers::BeginWrite(int layer) {
  const auto& [kind, index] = where_[static_cast<size_t>(layer)];
  if (kind != Where::Kind::kInTurns) return {Place(layer)};
  const auto block = static_cast<size_t>(index);
  std::vector<KvPlace> places = {PlaceIn(ring_->Home(block), 1, 0)};
  if (ring_->BeginWrite(block)) places.push_back(Place(layer));
  return places;
}

}  // namespace lamina::cuda
