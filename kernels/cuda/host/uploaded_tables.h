// The token slots that the rows of a step attend to, in device memory, as attention takes them
// (AttentionBatch in kernels/cuda/attention.h).
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/host/staged_stream.h"

namespace lamina::cuda {

// Owns the device memory. Thread: the stream's owner.
class UploadedTables {
 public:
  // Uploads the slots of `rows`, of which row i attends to rows[i], a part of a sequence's table.
  // Neighbouring rows that are parts of the same table share its slots. What was uploaded before is
  // replaced in the stream's order. Ends the process if there is no memory.
  void Upload(std::span<const std::span<const TokenSlot>> rows, StagedStream& stream);

  // The most tokens of any row.
  int64_t max_tokens() const { return max_tokens_; }

  // Sets slots, rows, num_rows, max_tokens and rows_share_slots of the batch.
  void FillIn(AttentionBatch& batch) const;

 private:
  DeviceBuffer slots_;       // [num_slots] TokenSlot, table by table
  DeviceBuffer row_tokens_;  // [rows] RowTokens
  int64_t num_rows_ = 0;
  int64_t max_tokens_ = 0;
  bool rows_share_slots_ = false;
};

}  // namespace lamina::cuda
