#include "manager/step_executor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/control_channel.h"

namespace lamina {

ComputeOrder MakeComputeOrder(uint64_t epoch, const StepPlan& plan, std::vector<NewSequence> added,
                              bool local) {
  ComputeOrder order;
  order.epoch = epoch;
  order.step = plan.step;
  order.batch = static_cast<uint32_t>(plan.batch);
  order.rotates = plan.rotates;
  order.dummy_prefill = plan.dummy_prefill;
  order.offload_interval = plan.offload_interval;
  // Of the only one.
  if (local && !plan.layers_inside.empty())
    order.layers_inside = plan.layers_inside.begin()->second;
  order.released = plan.released;
  order.new_sequences = std::move(added);
  order.work.reserve(plan.work.size());
  for (const Work& work : plan.work) {
    if (work.prefill && plan.dummy_prefill && !local) continue;
    ComputeWork& out = order.work.emplace_back();
    out.sequence = work.sequence;
    out.route.reserve(work.route.size());
    for (const KvPart& part : work.route) {
      WorkPart& told = out.route.emplace_back();
      told.node = part.node;
      told.num_tokens = static_cast<int32_t>(part.slots.size());
      if (!local) continue;
      told.slots = part.slots;
      told.shared = part.shared;
    }
    out.first_position = work.first_position;
    out.tokens = work.tokens;
    out.prefill = work.prefill;
    out.sample = work.sample;
    out.ends_prefill = work.ends_prefill;
  }
  return order;
}

namespace {

void AddDecodeRows(const Work& work, const KvPart& part, MemoryOrder& order) {
  if (!part.shared.empty()) {
    SharedPrefix& shared = order.shared.emplace_back();
    shared.sequence = work.sequence;
    shared.slots = part.shared;
  }
  for (size_t i = 0; i < std::max<size_t>(part.slots.size(), 1); ++i) {
    DecodeRow& row = order.decode.emplace_back();
    row.sequence = work.sequence;
    row.num_stored = part.num_stored + static_cast<int64_t>(i);
    row.position = work.first_position + static_cast<int64_t>(i);
    row.again = work.again;
    if (!part.slots.empty()) row.slot = part.slots[i];
  }
}

}  // namespace

MemoryOrder MakeMemoryOrder(uint64_t epoch, const StepPlan& plan, NodeId node) {
  MemoryOrder order;
  order.epoch = epoch;
  order.step = plan.step;
  order.batch = static_cast<uint32_t>(plan.batch);
  order.dummy_prefill = plan.dummy_prefill;
  order.released = plan.released;
  if (const auto inside = plan.layers_inside.find(node); inside != plan.layers_inside.end())
    order.layers_inside = inside->second;
  for (const Work& work : plan.work) {
    const auto part = std::find_if(work.route.begin(), work.route.end(),
                                   [&](const KvPart& p) { return p.node == node; });
    if (part == work.route.end()) continue;
    if (work.prefill) {
      PrefillChunk& chunk = order.prefill.emplace_back();
      chunk.sequence = work.sequence;
      chunk.num_stored = part->num_stored;
      int64_t position = work.first_position;  // the parts of a route follow each other
      for (auto before = work.route.begin(); before != part; ++before)
        position += std::ssize(before->slots);
      chunk.first_position = position;
      chunk.slots = part->slots;
    } else {
      AddDecodeRows(work, *part, order);
    }
  }
  return order;
}

namespace {

// Of protobuf: a token or slot takes up to 5 bytes, any other number up to 10, and a tag or the
// length of a message 1 or 2 more.
constexpr size_t kNumber = 5, kLongNumber = 10;

}  // namespace

size_t MaxOrderBytes(const SamplingParams& sampling) {
  constexpr size_t kScalars = 128, kBias = 2 + 1 + kLongNumber + 1 + sizeof(float);
  size_t bytes = kScalars + sampling.logit_bias.size() * kBias +
                 sampling.banned.size() * kLongNumber + sampling.allowed_tokens.size() +
                 sampling.grammar.size();
  for (const TokenList& word : sampling.bad_words)
    bytes += 2 * kNumber + word.tokens.size() * kLongNumber;
  return bytes;
}

size_t MaxOrderBytes(const StepPlan& plan, std::span<const NewSequence> added) {
  constexpr size_t kDecodeRow = 48, kPart = 32, kWork = 48, kOrder = 64;
  size_t bytes = kOrder + plan.released.size() * kLongNumber;
  for (const NewSequence& sequence : added)
    bytes += kWork + MaxOrderBytes(sequence.sampling) + sequence.tokens.size() * kNumber;
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

namespace {

// Of what goes on nobody knows which is too much. What is shows when it starts again.
FailedSequence LeftOut(const Work& work) {
  const std::string most = "is more than they take: " + std::to_string(kMaxFrameBytes) + " bytes";
  if (work.first)
    return {work.sequence,
            OutOfSpace("what nodes have to be told to start this sequence " + most +
                       "; a shorter prompt may do"),
            FailureCause::kRequest};
  return {work.sequence, OutOfSpace("what nodes have to be told for a step " + most),
          FailureCause::kKvLost};
}

}  // namespace

FittedStep FitOrders(
    const StepPlan& plan, std::span<const NewSequence> added,
    const std::function<bool(const StepPlan&, std::span<const NewSequence>)>& fits) {
  FittedStep fitted{plan, {added.begin(), added.end()}, {}};
  for (const bool all : {false, true}) {
    if (fits(fitted.plan, fitted.added)) break;
    const auto goes = [all](const Work& work) { return all || work.first; };
    for (const Work& work : fitted.plan.work) {
      if (goes(work)) fitted.left_out.push_back(LeftOut(work));
    }
    std::erase_if(fitted.plan.work, goes);
    fitted.added.clear();
  }
  return fitted;
}

AttentionSpec MakeAttentionSpec(const ModelConfig& model, DType kv_dtype, DType wire_dtype) {
  AttentionSpec spec;
  spec.num_layers = model.num_layers;
  spec.num_heads = model.num_heads;
  spec.num_kv_heads = model.num_kv_heads;
  spec.head_dim = model.head_dim;
  spec.scale = static_cast<float>(model.AttentionScale());
  spec.soft_cap = static_cast<float>(model.attention_soft_cap);
  spec.windows = model.windows;
  spec.kv_dtype = kv_dtype;
  spec.wire_dtype = wire_dtype;
  return spec;
}

}  // namespace lamina
