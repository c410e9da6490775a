#include "kernels/token_slab.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "base/host_memory.h"
#include "base/huge_memory.h"
#include "kernels/elementwise.h"

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
  UnmapHuge(memory_, memory_bytes_);
}

void TokenSlab::StartPrefault() {
  if (memory_bytes_ < kLeastPrefaultBytes || prefault_ != nullptr) return;
  const size_t num_strips =
      size_t{2} * static_cast<size_t>(shape_.num_layers) * static_cast<size_t>(shape_.num_kv_heads);
  prefault_ = std::make_unique<Prefault>(memory_, num_strips, memory_bytes_ / num_strips);
  ReachPage(0);
}

void TokenSlab::ReachPage(TokenSlot slot) {
  const auto row_bytes =
      static_cast<int64_t>(static_cast<size_t>(shape_.head_dim) * ElementSize(shape_.dtype));
  const int64_t slots_of_half = static_cast<int64_t>(kHugePageBytes) / 2 / row_bytes;
  const int64_t next = (slot / slots_of_half + 1) * slots_of_half;
  next_half_page_ = next;
  prefault_->Reach(static_cast<size_t>((next + slots_of_half) * row_bytes));
}

std::byte* TokenSlab::Begin(int layer, bool writes) const {
  return layers_ != nullptr ? layers_->Use(layer, writes) : memory_ + layer * layer_bytes();
}

int64_t TokenSlab::At(int k_or_v, int kv_head, TokenSlot slot) const {
  const int64_t head = int64_t{k_or_v} * shape_.num_kv_heads + kv_head;
  const int64_t row_bytes = shape_.head_dim * static_cast<int64_t>(ElementSize(shape_.dtype));
  return (head * capacity_tokens_ + int64_t{slot}) * row_bytes;
}

KvView TokenSlab::View(int layer) const {
  const std::byte* const begin = Begin(layer, false);
  return {begin + At(0, 0, 0), begin + At(1, 0, 0), capacity_tokens_ * shape_.head_dim,
          shape_.head_dim, shape_.dtype};
}

void TokenSlab::Write(int layer, TokenSlot slot, const float* k, const float* v) {
  Reach(slot);
  std::byte* const begin = Begin(layer, true);
  for (int h = 0; h < shape_.num_kv_heads; ++h) {
    const int64_t at = int64_t{h} * shape_.head_dim;
    ConvertFromFloat(k + at, shape_.head_dim, shape_.dtype, begin + At(0, h, slot));
    ConvertFromFloat(v + at, shape_.head_dim, shape_.dtype, begin + At(1, h, slot));
  }
}

void TokenSlab::WriteRaw(int layer, TokenSlot slot, const void* k, const void* v) {
  Reach(slot);
  std::byte* const begin = Begin(layer, true);
  const size_t row_bytes = static_cast<size_t>(shape_.head_dim) * ElementSize(shape_.dtype);
  for (int h = 0; h < shape_.num_kv_heads; ++h) {
    const size_t at = static_cast<size_t>(h) * row_bytes;
    std::memcpy(begin + At(0, h, slot), static_cast<const std::byte*>(k) + at, row_bytes);
    std::memcpy(begin + At(1, h, slot), static_cast<const std::byte*>(v) + at, row_bytes);
  }
}

void TokenSlab::FillDummy(std::span<const TokenSlot> slots) {
  const size_t element = ElementSize(shape_.dtype),
               row_bytes = static_cast<size_t>(shape_.head_dim) * element;
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
    ConvertFromFloat(values.data(), static_cast<int64_t>(values.size()), shape_.dtype,
                     dummy_.data());
  }
  // By slot: the place from which its last row was copied.
  std::vector<size_t> rows(slots.begin(), slots.end());
  for (int layer = 0; layer < shape_.num_layers; ++layer) {
    std::byte* const begin = Begin(layer, true);
    for (size_t i = 0; i < slots.size(); ++i) {
      Reach(slots[i]);
      for (int h = 0; h < shape_.num_kv_heads; ++h) {
        for (const int k_or_v : {0, 1}) {
          // Spreads the places from which a slot's rows are copied.
          rows[i] = (rows[i] * 31 + 17) % kNumDummyValues;
          std::memcpy(begin + At(k_or_v, h, slots[i]), dummy_.data() + rows[i] * element,
                      row_bytes);
        }
      }
    }
  }
}

}  // namespace lamina
