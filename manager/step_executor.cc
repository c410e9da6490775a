#include "manager/step_executor.h"

#include <algorithm>

namespace lamina {

control::ComputeOrder MakeComputeOrder(uint64_t epoch, const StepPlan& plan,
                                       std::span<const control::NewSequence> added, bool local) {
  control::ComputeOrder order;
  order.set_epoch(epoch);
  order.set_step(plan.step.value);
  order.set_batch(static_cast<uint32_t>(plan.batch));
  order.set_rotates(plan.rotates);
  order.set_dummy_prefill(plan.dummy_prefill);
  for (const SequenceId released : plan.released) order.add_released(released.value);
  for (const control::NewSequence& sequence : added) *order.add_new_sequences() = sequence;
  for (const Work& work : plan.work) {
    if (work.prefill && plan.dummy_prefill && !local) continue;
    control::ComputeWork& out = *order.add_work();
    out.set_sequence(work.sequence.value);
    for (const KvPart& part : work.route) {
      control::KvPart& told = *out.add_route();
      told.set_node_id(part.node.value);
      told.set_num_tokens(static_cast<int32_t>(part.slots.size()));
      if (!local) continue;
      told.mutable_slots()->Add(part.slots.begin(), part.slots.end());
      told.mutable_shared()->Add(part.shared.begin(), part.shared.end());
    }
    out.set_first_position(work.first_position);
    out.mutable_tokens()->Add(work.tokens.begin(), work.tokens.end());
    out.set_prefill(work.prefill);
    out.set_sample(work.sample);
  }
  return order;
}

namespace {

void AddDecodeRows(const Work& work, const KvPart& part, control::MemoryOrder& order) {
  if (!part.shared.empty()) {
    control::SharedPrefix& shared = *order.add_shared();
    shared.set_sequence(work.sequence.value);
    shared.mutable_slots()->Add(part.shared.begin(), part.shared.end());
  }
  for (size_t i = 0; i < std::max<size_t>(part.slots.size(), 1); ++i) {
    control::DecodeRow& row = *order.add_decode();
    row.set_sequence(work.sequence.value);
    row.set_num_stored(part.num_stored + static_cast<int64_t>(i));
    row.set_position(work.first_position + static_cast<int64_t>(i));
    if (!part.slots.empty()) row.set_slot(part.slots[i]);
  }
}

}  // namespace

control::MemoryOrder MakeMemoryOrder(uint64_t epoch, const StepPlan& plan, NodeId node) {
  control::MemoryOrder order;
  order.set_epoch(epoch);
  order.set_step(plan.step.value);
  order.set_batch(static_cast<uint32_t>(plan.batch));
  order.set_dummy_prefill(plan.dummy_prefill);
  for (const SequenceId released : plan.released) order.add_released(released.value);
  for (const Work& work : plan.work) {
    const auto part = std::find_if(work.route.begin(), work.route.end(),
                                   [&](const KvPart& p) { return p.node == node; });
    if (part == work.route.end()) continue;
    if (work.prefill) {
      control::PrefillChunk& chunk = *order.add_prefill();
      chunk.set_sequence(work.sequence.value);
      chunk.set_num_stored(part->num_stored);
      int64_t position = work.first_position;  // the parts of a route follow each other
      for (auto before = work.route.begin(); before != part; ++before)
        position += std::ssize(before->slots);
      chunk.set_first_position(position);
      chunk.mutable_slots()->Add(part->slots.begin(), part->slots.end());
    } else {
      AddDecodeRows(work, *part, order);
    }
  }
  return order;
}

size_t MaxOrderBytes(const StepPlan& plan, std::span<const control::NewSequence> added) {
  // Of protobuf: a number of 32 bits takes up to 5 bytes, one of 64 bits 10, and a tag or the
  // length of a message 1 or 2 more.
  constexpr size_t kNumber = 5, kLongNumber = 10, kDecodeRow = 48, kPart = 32, kWork = 48,
                   kOrder = 64;
  size_t bytes = kOrder + plan.released.size() * kLongNumber;
  for (const control::NewSequence& sequence : added)
    bytes += kWork + sequence.sampling().ByteSizeLong() +
             static_cast<size_t>(sequence.tokens_size()) * kNumber;
  for (const Work& work : plan.work) {
    bytes += kWork + work.tokens.size() * kNumber;
    for (const KvPart& part : work.route) {
      const size_t slots = work.prefill ? part.slots.size() * kNumber
                                        : std::max<size_t>(part.slots.size(), 1) * kDecodeRow;
      bytes += kPart + slots + part.shared.size() * kNumber;
    }
  }
  return bytes;
}

FittedStep FitOrders(
    const StepPlan& plan, std::span<const control::NewSequence> added,
    const std::function<bool(const StepPlan&, std::span<const control::NewSequence>)>& fits) {
  FittedStep fitted{plan, {added.begin(), added.end()}, {}};
  for (const bool all : {false, true}) {
    if (fits(fitted.plan, fitted.added)) break;
    const auto goes = [all](const Work& work) { return all || work.first; };
    for (const Work& work : fitted.plan.work) {
      if (goes(work)) fitted.left_out.push_back(work.sequence);
    }
    std::erase_if(fitted.plan.work, goes);
    fitted.added.clear();
  }
  return fitted;
}

namespace {

control::KvDType ToProto(DType dtype) {
  switch (dtype) {
    case DType::kF32: return control::KV_DTYPE_FLOAT32;
    case DType::kBF16: return control::KV_DTYPE_BFLOAT16;
    case DType::kF16: return control::KV_DTYPE_FLOAT16;
    case DType::kF8: return control::KV_DTYPE_FP8;
  }
  return control::KV_DTYPE_FLOAT32;
}

}  // namespace

control::AttentionSpec MakeAttentionSpec(const ModelConfig& model, DType kv_dtype,
                                         DType wire_dtype) {
  control::AttentionSpec spec;
  spec.set_num_layers(model.num_layers);
  spec.set_num_heads(model.num_heads);
  spec.set_num_kv_heads(model.num_kv_heads);
  spec.set_head_dim(model.head_dim);
  spec.set_scale(static_cast<float>(model.AttentionScale()));
  spec.set_soft_cap(static_cast<float>(model.attention_soft_cap));
  spec.mutable_windows()->Add(model.windows.begin(), model.windows.end());
  spec.set_kv_dtype(ToProto(kv_dtype));
  spec.set_wire_dtype(ToProto(wire_dtype));
  return spec;
}

}  // namespace lamina
