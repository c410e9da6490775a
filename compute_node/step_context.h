// The payload of a context message, by which a compute node hands a batch to the node that runs its
// next slice:
//
//   each value of Slice::context_in   [rows, width], in that order
//   attention output                  [prefill rows, width]; the outputs of decode rows come from
//                                     the memory nodes
//   StepState                         the remaining bytes
//
// Values are in the wire dtype.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "compute_node/compute_device.h"
#include "splitter/slices.h"
#include "wire/step_messages.h"

namespace lamina {

struct ContextFormat {
  const SlicedModel& model;
  DType dtype = DType::kF32;
};

// Upper bound of what WriteState needs for a step of at most `max_rows` rows.
size_t MaxStateBytes(int max_rows);
// Writes the state that ends a context or a partial sum; returns its size in bytes. Long texts are
// cut, and if the rest does not fit, times, texts and lost peers are left out. REQUIRES: `room` has
// MaxStateBytes of the step's rows.
size_t WriteState(StepState state, std::span<std::byte> room);

// Bytes of the largest context of any slice, for steps of at most `max_rows` rows.
size_t MaxContextBytes(const ContextFormat& format, int max_rows);

// What a context is taken from, or put into: the rows of a step before its slice `slice`.
struct ContextRows {
  int slice = 0;
  SliceRunner& slices;
  size_t num_rows = 0;
  size_t first_prefill = 0;  // rows [first_prefill, num_rows) are prefill
};

// Writes the context that the slice needs, packed by `device`; returns its size in bytes. REQUIRES:
// `payload` has MaxContextBytes; the values of the slice before it are live.
size_t WriteContext(const ContextFormat& format, ComputeDevice& device, const ContextRows& rows,
                    StepState state, std::span<std::byte> payload);

// Reads what WriteContext has written: unpacks the values and returns the state.
// kCorrupt if the payload is too short for so many rows or the state cannot be parsed.
Result<StepState> ReadContext(const ContextFormat& format, ComputeDevice& device,
                              const ContextRows& rows, std::span<const std::byte> payload);

}  // namespace lamina
