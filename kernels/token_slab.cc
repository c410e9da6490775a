#include "kernels/token_slab.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/host_memory.h"
#include "base/huge_memory.h"
#include "kernels/elementwise.h"
#include "kernels/kv_rows.h"

namespace lamina {
namespace {

// The pages of less take a few milliseconds.
constexpr size_t kLeastPrefaultBytes = size_t{16} << 20;

Status CheckShape(const KvShape& shape, int64_t capacity_tokens) {
  if (shape.num_layers <= 0 || shape.num_kv_heads <= 0) {
    return InvalidArgument("token slab: " + std::to_string(shape.num_layers) + " layers of " +
                           std::to_string(shape.num_kv_heads) +
                           " kv heads, expected at least one of each");
  }
  if (shape.head_dim <= 0 || shape.head_dim > 256 || shape.head_dim % 8 != 0) {
    return InvalidArgument("token slab: head_dim is " + std::to_string(shape.head_dim) +
                           ", expected a multiple of 8 up to 256");
  }
  if (capacity_tokens <= 0 || capacity_tokens > std::numeric_limits<TokenSlot>::max()) {
    return InvalidArgument("token slab: capacity is " + std::to_string(capacity_tokens) +
                           " tokens, expected 1 to 2^32 - 1");
  }
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<TokenSlab>> TokenSlab::Create(const KvShape& shape,
                                                     int64_t capacity_tokens) {
  LAMINA_RETURN_IF_ERROR(CheckShape(shape, capacity_tokens));
  const std::string what = std::to_string(capacity_tokens) + " tokens of " +
                           std::to_string(shape.bytes_per_token()) + " bytes of KV";
  const int64_t bytes = SaturatedProduct(shape.bytes_per_token(), capacity_tokens);
  // The system would give the memory and end this process when sequences fill it.
  if (Status status = CheckHostMemory(bytes, what); !status.ok())
    return OutOfSpace(status.message() + "; use fewer tokens");
  const auto memory_bytes = static_cast<size_t>(bytes);
  void* const memory = MapHuge(memory_bytes);
  if (memory == nullptr)
    return OutOfSpace("the system refused the memory for " + what + "; use fewer tokens");
  return std::unique_ptr<TokenSlab>(
      new TokenSlab(shape, capacity_tokens, static_cast<std::byte*>(memory), memory_bytes));
}

Result<std::unique_ptr<TokenSlab>> TokenSlab::CreateIn(std::unique_ptr<LayerMemory> layers,
                                                       const KvShape& shape) {
  LAMINA_RETURN_IF_ERROR(CheckShape(shape, layers->pitch_tokens()));
  std::unique_ptr<TokenSlab> slab(new TokenSlab(shape, layers->pitch_tokens(), nullptr, 0));
  slab->layers_ = std::move(layers);
  return slab;
}

TokenSlab::TokenSlab(const KvShape& shape, int64_t capacity_tokens, std::byte* memory,
                     size_t memory_bytes)
    : shape_(shape),
      capacity_tokens_(capacity_tokens),
      memory_(memory),
      memory_bytes_(memory_bytes) {}

TokenSlab::~TokenSlab() {
  prefault_.reset();
  scale_prefault_.reset();
  UnmapHuge(memory_, memory_bytes_);
}

void TokenSlab::StartPrefault() {
  if (memory_bytes_ < kLeastPrefaultBytes || prefault_ != nullptr) return;
  const size_t num_strips =
      size_t{2} * static_cast<size_t>(shape_.num_layers) * static_cast<size_t>(shape_.num_kv_heads);
  const auto capacity = static_cast<size_t>(capacity_tokens_);
  const size_t strip_bytes = capacity * static_cast<size_t>(row_bytes());
  prefault_ = std::make_unique<Prefault>(memory_, num_strips, strip_bytes);
  if (HasScales(shape_.dtype)) {
    scale_prefault_ = std::make_unique<Prefault>(memory_ + num_strips * strip_bytes, num_strips,
                                                 capacity * sizeof(float));
  }
  ReachPage(0);
}

void TokenSlab::ReachPage(TokenSlot slot) {
  const int64_t slots_of_half = static_cast<int64_t>(kHugePageBytes) / 2 / row_bytes();
  const int64_t next = (slot / slots_of_half + 1) * slots_of_half;
  next_half_page_ = next;
  const auto reached = static_cast<size_t>(next + slots_of_half);
  prefault_->Reach(reached * static_cast<size_t>(row_bytes()));
  if (scale_prefault_ != nullptr) scale_prefault_->Reach(reached * sizeof(float));
}

std::byte* TokenSlab::Begin(int layer, bool writes) const {
  return layers_ != nullptr ? layers_->Use(layer, writes) : memory_ + layer * layer_bytes();
}

std::byte* TokenSlab::Scales(int layer, std::byte* begin) const {
  if (!HasScales(shape_.dtype)) return nullptr;
  if (scales_follow_slots()) return begin + row_bytes();
  const int64_t scales_of_layer = int64_t{2} * shape_.num_kv_heads * capacity_tokens_;
  return memory_ + shape_.num_layers * layer_bytes() +
         layer * scales_of_layer * static_cast<int64_t>(sizeof(float));
}

KvView TokenSlab::View(int layer) const {
  std::byte* const begin = Begin(layer, false);
  const int v = HeadOf(1, 0);
  const int64_t pitch = slot_bytes() / static_cast<int64_t>(ElementSize(shape_.dtype));
  KvView view = {.k = begin,
                 .v = begin + At(v, 0),
                 .head_stride = capacity_tokens_ * pitch,
                 .slot_stride = pitch,
                 .dtype = shape_.dtype};
  if (const std::byte* const scales = Scales(layer, begin); scales != nullptr) {
    view.k_scales = reinterpret_cast<const float*>(scales);
    view.v_scales = reinterpret_cast<const float*>(scales + ScaleAt(v, 0));
    view.scale_slot_stride = scale_slot_bytes() / static_cast<int64_t>(sizeof(float));
    view.scale_head_stride = capacity_tokens_ * view.scale_slot_stride;
  }
  return view;
}

void TokenSlab::Write(int layer, TokenSlot slot, const float* k, const float* v) {
  Reach(slot);
  std::byte* const begin = Begin(layer, true);
  std::byte* const scales = Scales(layer, begin);
  for (int h = 0; h < shape_.num_kv_heads; ++h) {
    for (const int k_or_v : {0, 1}) {
      const float* const x = (k_or_v == 0 ? k : v) + int64_t{h} * shape_.head_dim;
      const int head = HeadOf(k_or_v, h);
      std::byte* const to = begin + At(head, slot);
      if (scales == nullptr) {
        ConvertFromFloat(x, shape_.head_dim, shape_.dtype, to);
      } else {
        const float scale = RoundWithScale(x, shape_.head_dim, shape_.dtype, to);
        std::memcpy(scales + ScaleAt(head, slot), &scale, sizeof(scale));
      }
    }
  }
}

void TokenSlab::WriteRaw(int layer, TokenSlot slot, const void* k, const void* v) {
  Reach(slot);
  std::byte* const begin = Begin(layer, true);
  std::byte* const scales = Scales(layer, begin);
  for (const int k_or_v : {0, 1}) {
    const auto* from = static_cast<const std::byte*>(k_or_v == 0 ? k : v);
    for (int h = 0; h < shape_.num_kv_heads; ++h, from += row_bytes())
      std::memcpy(begin + At(HeadOf(k_or_v, h), slot), from, static_cast<size_t>(row_bytes()));
    if (scales == nullptr) continue;
    for (int h = 0; h < shape_.num_kv_heads; ++h, from += sizeof(float))
      std::memcpy(scales + ScaleAt(HeadOf(k_or_v, h), slot), from, sizeof(float));
  }
}

void TokenSlab::FillDummy(std::span<const TokenSlot> slots) {
  const size_t element = ElementSize(shape_.dtype);
  // Values are made once and then copied, each row from another place, so that filling a long
  // context costs copies only.
  if (dummy_.empty()) {
    std::vector<float> values(kNumDummyValues + static_cast<size_t>(shape_.head_dim));
    uint32_t state = 1;  // of the generator of Numerical Recipes, section 7.1
    for (float& value : values) {
      state = state * 1664525u + 1013904223u;
      value = static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
    dummy_.resize(values.size() * element);
    const auto num_values = static_cast<int64_t>(values.size());
    if (HasScales(shape_.dtype)) {
      dummy_scale_ = RoundWithScale(values.data(), num_values, shape_.dtype, dummy_.data());
    } else {
      ConvertFromFloat(values.data(), num_values, shape_.dtype, dummy_.data());
    }
  }
  // By slot: the place from which its last row was copied.
  std::vector<size_t> rows(slots.begin(), slots.end());
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    std::byte* const begin = Begin(layer, true);
    std::byte* const scales = Scales(layer, begin);
    for (size_t i = 0; i < slots.size(); ++i) {
      Reach(slots[i]);
      for (int h = 0; h < shape_.num_kv_heads; ++h) {
        for (const int k_or_v : {0, 1}) {
          // Spreads the places from which a slot's rows are copied.
          rows[i] = (rows[i] * 31 + 17) % kNumDummyValues;
          const int head = HeadOf(k_or_v, h);
          std::memcpy(begin + At(head, slots[i]), dummy_.data() + rows[i] * element,
                      static_cast<size_t>(row_bytes()));
          if (scales != nullptr)
            std::memcpy(scales + ScaleAt(head, slots[i]), &dummy_scale_, sizeof(dummy_scale_));
        }
      }
    }
  }
}

}  // namespace lamina
