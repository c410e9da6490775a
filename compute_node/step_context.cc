#include "compute_node/step_context.h"

#include <algorithm>
#include <string>

#include "wire/codec.h"

namespace lamina {
namespace {

// Room for the state behind a context: a few hundred bytes, and a failure of each row. With texts
// of kMaxFailureText bytes a failure fits into kStateBytesPerRow.
constexpr size_t kStateBytes = 4096, kStateBytesPerRow = 256;
constexpr size_t kMaxFailureText = 200;

// Cuts the text to kMaxFailureText bytes, at the end of a UTF-8 character.
std::string Cut(const std::string& text) {
  size_t end = std::min(text.size(), kMaxFailureText);
  while (end > 0 && end < text.size() && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// Calls visit(value, first, count) for each block of the context of slice `k`: `count` floats of
// the value, from its float `first` on. Of the attention output only the prefill rows belong to it;
// the memory nodes send the others to the node that runs the slice.
template <typename Visit>
void ForEachBlock(const SlicedModel& model, int k, size_t num_rows, size_t first_prefill,
                  Visit visit) {
  const Slice& slice = model.slices[static_cast<size_t>(k)];
  const auto width = [&](ValueId id) {
    return static_cast<size_t>(model.graph.values[static_cast<size_t>(id)].width);
  };
  for (const ValueId id : slice.context_in) visit(id, size_t{0}, num_rows * width(id));
  visit(slice.attention_out, first_prefill * width(slice.attention_out),
        (num_rows - first_prefill) * width(slice.attention_out));
}

size_t BlockBytes(const ContextFormat& format, int k, size_t num_rows, size_t first_prefill) {
  size_t elements = 0;
  ForEachBlock(format.model, k, num_rows, first_prefill,
               [&](ValueId, size_t, size_t count) { elements += count; });
  return elements * static_cast<size_t>(ElementSize(format.dtype));
}

}  // namespace

size_t MaxContextBytes(const ContextFormat& format, int max_rows) {
  const auto rows = static_cast<size_t>(max_rows);
  size_t bytes = 0;
  for (size_t k = 1; k < format.model.slices.size(); ++k)
    bytes = std::max(bytes, BlockBytes(format, static_cast<int>(k), rows, 0));
  return bytes + MaxStateBytes(max_rows);
}

size_t MaxStateBytes(int max_rows) {
  return kStateBytes + static_cast<size_t>(max_rows) * kStateBytesPerRow;
}

size_t WriteState(StepState state, std::span<std::byte> room) {
  if (!state.so_far) return EncodeInto(state, room).value_or(0);
  StepResult& so_far = *state.so_far;
  for (FailedSequence& failed : so_far.failed)
    failed.why = Status(failed.why.code(), Cut(failed.why.message()));
  for (LostNode& lost : so_far.lost_nodes) lost.message = Cut(lost.message);
  std::optional<size_t> bytes = EncodeInto(state, room);
  // If there still is not enough room, leaves out what is needed least first. Which sequences have
  // failed is needed most: they must not get a token.
  if (!bytes) {
    so_far.times.clear();
    bytes = EncodeInto(state, room);
  }
  for (size_t i = 0; !bytes && i < so_far.failed.size(); ++i) {
    so_far.failed[i].why = Status(so_far.failed[i].why.code(), "");
    bytes = EncodeInto(state, room);
  }
  if (!bytes) {
    so_far.lost_nodes.clear();
    bytes = EncodeInto(state, room);
  }
  while (!bytes && !so_far.failed.empty()) {  // only if more have failed than there are rows
    so_far.failed.pop_back();
    bytes = EncodeInto(state, room);
  }
  return bytes.value_or(0);
}

size_t WriteContext(const ContextFormat& format, ComputeDevice& device, const ContextRows& rows,
                    StepState state, std::span<std::byte> payload) {
  std::vector<PackedParts> packed;
  ForEachBlock(format.model, rows.slice, rows.num_rows, rows.first_prefill,
               [&](ValueId id, size_t first, size_t count) {
                 packed.push_back({rows.slices.value(id) + first,
                                   RowParts::Whole(static_cast<int64_t>(count)), format.dtype});
               });
  const auto end = static_cast<size_t>(device.Pack(packed, payload.data()) - payload.data());
  return end + WriteState(std::move(state), payload.subspan(end));
}

Result<StepState> ReadContext(const ContextFormat& format, ComputeDevice& device,
                              const ContextRows& rows, std::span<const std::byte> payload) {
  const size_t block_bytes = BlockBytes(format, rows.slice, rows.num_rows, rows.first_prefill);
  if (payload.size() < block_bytes) {
    return Corrupt("the context of slice " + std::to_string(rows.slice) + " has " +
                   std::to_string(payload.size()) + " bytes, expected " +
                   std::to_string(block_bytes) + " and a state");
  }
  size_t end = 0;
  ForEachBlock(format.model, rows.slice, rows.num_rows, rows.first_prefill,
               [&](ValueId id, size_t first, size_t count) {
                 device.Unpack(payload.data() + end, format.dtype,
                               RowParts::Whole(static_cast<int64_t>(count)),
                               rows.slices.value(id) + first);
                 end += count * static_cast<size_t>(ElementSize(format.dtype));
               });
  Result<StepState> state = Decode<StepState>(
      {reinterpret_cast<const char*>(payload.data() + end), payload.size() - end});
  if (!state.ok())
    return Corrupt("the state behind the context of slice " + std::to_string(rows.slice) +
                   " cannot be parsed: " + state.status().message());
  return state;
}

}  // namespace lamina
