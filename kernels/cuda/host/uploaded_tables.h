// Which token slots the rows of a step attend to, in device memory.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/host/staged_stream.h"

namespace lamina::cuda {

// Thread: the stream's owner.
class UploadedTables {
 public:
  // Row i attends to rows[i], which are parts of tables; rows that are parts of the same one share
  // its slots. What was there before is replaced in the stream's order.
  void Upload(std::span<const std::span<const TokenSlot>> rows, StagedStream& stream);

  int64_t max_tokens() const { return max_tokens_; }  // of any row

  // The batch attends for these rows.
  void FillIn(AttentionBatch& batch) const;

 private:
  DeviceBuffer slots_;       // TokenSlot, table by table
  DeviceBuffer row_tokens_;  // [rows] RowTokens
  int64_t num_rows_ = 0;
  int64_t max_tokens_ = 0;
  bool rows_share_slots_ = false;  // as AttentionBatch's
};

}  // namespace lamina::cuda
