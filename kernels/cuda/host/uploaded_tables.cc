#include "kernels/cuda/host/uploaded_tables.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <vector>

namespace lamina::cuda {
namespace {

// What is uploaded: the rows, and the slots that they are parts of.
struct PackedRows {
  std::vector<RowTokens> rows;
  std::vector<std::span<const TokenSlot>> pieces;  // the uploaded slots, one piece after the other
  int64_t num_slots = 0;                           // of all pieces
  int64_t max_tokens = 0;                          // of any row
  bool rows_share_slots = false;                   // see AttentionBatch
};

// Rows of a prompt are parts of one table, each a token longer than the one before. So that their
// slots are uploaded once, a row that begins within the last piece, or right behind it, extends
// that piece. Pieces of different tables may meet by chance, which does no harm.
PackedRows Pack(std::span<const std::span<const TokenSlot>> rows) {
  PackedRows packed;
  const std::less_equal<const TokenSlot*> not_after;
  int64_t num_shared = 0;
  for (const std::span<const TokenSlot> row : rows) {
    const std::span<const TokenSlot> last =
        packed.pieces.empty() ? std::span<const TokenSlot>() : packed.pieces.back();
    // std::less_equal, since the pointers may be into different tables.
    int64_t first_slot = packed.num_slots;
    if (!row.empty() && !last.empty() && not_after(last.data(), row.data()) &&
        not_after(row.data(), last.data() + last.size())) {
      const auto begin = row.data() - last.data();
      const size_t size = std::max(last.size(), static_cast<size_t>(begin) + row.size());
      first_slot += begin - std::ssize(last);
      packed.pieces.back() = {last.data(), size};
      packed.num_slots += static_cast<int64_t>(size - last.size());
    } else if (!row.empty()) {
      packed.pieces.push_back(row);
      packed.num_slots += std::ssize(row);
    }
    if (!packed.rows.empty() && packed.rows.back().first_slot == first_slot) ++num_shared;
    packed.rows.push_back({first_slot, std::ssize(row)});
    packed.max_tokens = std::max(packed.max_tokens, std::ssize(row));
  }
  packed.rows_share_slots = 2 * num_shared > std::ssize(rows);  // most of them do
  return packed;
}

}  // namespace

void UploadedTables::Upload(std::span<const std::span<const TokenSlot>> rows,
                            StagedStream& stream) {
  const PackedRows packed = Pack(rows);
  num_rows_ = std::ssize(rows);
  max_tokens_ = packed.max_tokens;
  rows_share_slots_ = packed.rows_share_slots;
  const size_t bytes = static_cast<size_t>(packed.num_slots) * sizeof(TokenSlot);
  GrowTo(bytes, stream, slots_);
  GrowTo(rows.size() * sizeof(RowTokens), stream, row_tokens_);
  std::byte* const taken = stream.Take(bytes);
  std::byte* end = taken;
  for (const std::span<const TokenSlot> piece : packed.pieces) {
    std::memcpy(end, piece.data(), piece.size_bytes());
    end += piece.size_bytes();
  }
  stream.Upload(taken, bytes, slots_.data());
  stream.Copy(packed.rows.data(), packed.rows.size() * sizeof(RowTokens), row_tokens_.data());
}

void UploadedTables::FillIn(AttentionBatch& batch) const {
  batch.slots = slots_.as<TokenSlot>();
  batch.rows = row_tokens_.as<RowTokens>();
  batch.num_rows = num_rows_;
  batch.max_tokens = max_tokens_;
  batch.rows_share_slots = rows_share_slots_;
}

}  // namespace lamina::cuda
