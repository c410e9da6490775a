// What a compute node hands to the one that runs the next slice of a batch: the payload of a
// context message.
//
//   each of Slice::context_in    [rows, width], in that order
//   attention output             [prefill rows, width], of the rows behind the decoding ones;
//   theirs comes from memory nodes control::StepState           the rest
// Values travel in the wire dtype.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "compute_node/compute_device.h"
#include "splitter/slices.h"
#include "wire/control.pb.h"

namespace lamina {

struct ContextFormat {
  const SlicedModel& model;
  DType dtype = DType::kF32;
};

// A state as it stands behind a context or a partial sum; returns its size. Texts that would be too
// long are cut. REQUIRES: `room` has MaxStateBytes of its rows.
size_t MaxStateBytes(int max_rows);
size_t WriteState(control::StepState state, std::span<std::byte> room);

// Of the largest context of any slice, with `max_rows` rows.
size_t MaxContextBytes(const ContextFormat& format, int max_rows);

// Writes the context that slice `k` needs; returns its size. REQUIRES: `payload` has
// MaxContextBytes; the values of the slice before are live. The device packs.
size_t WriteContext(const ContextFormat& format, ComputeDevice& device, int k, SliceRunner& slices,
                    size_t num_rows, size_t first_prefill, control::StepState state,
                    std::span<std::byte> payload);

// The other end of it. kCorrupt: the size is not that of so many rows, or the state cannot be
// parsed.
Result<control::StepState> ReadContext(const ContextFormat& format, ComputeDevice& device, int k,
                                       SliceRunner& slices, size_t num_rows, size_t first_prefill,
                                       std::span<const std::byte> payload);

}  // namespace lamina
