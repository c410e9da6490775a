#include "compute_node/peer_rows.h"

namespace lamina {

void PeerRows::Clear() {
  decode_.clear();
  stored_.clear();
  prefill_.clear();
  whole_.clear();
  wants_lse_ = false;
}

void PeerRows::Add(int row, const AttentionWork& work) {
  if (work.prefill) {
    prefill_.push_back(row);
    return;
  }
  decode_.push_back(row);
  const bool whole = work.also_on.empty() && !has_sinks_;
  whole_.push_back(whole);
  // Of the nodes that have tokens of the sequence, one stores the new one.
  if (work.node == peer_.address().group) stored_.push_back(row);
  wants_lse_ |= !whole;
}

RowParts PeerRows::Heads(std::span<const int> rows) const {
  const int64_t first_head = int64_t{peer_.address().first_kv_head} * shape_.group();
  return {rows, int64_t{shape_.num_heads} * shape_.head_dim, first_head * shape_.head_dim,
          static_cast<int64_t>(peer_.wire().q_row_elements())};
}

RowParts PeerRows::KvHeads(std::span<const int> rows) const {
  return {rows, int64_t{shape_.num_kv_heads} * shape_.head_dim,
          int64_t{peer_.address().first_kv_head} * shape_.head_dim,
          static_cast<int64_t>(peer_.wire().kv_row_elements())};
}

size_t PeerRows::OutputBytes() const {
  const WireShape& wire = peer_.wire();
  return decode_.size() * (wire.q_row_bytes() + (wants_lse_ ? wire.lse_row_bytes() : 0));
}

void PeerRows::MergeOthers(std::span<const std::byte> payload, PartialOutputs& partials) const {
  const WireShape& wire = peer_.wire();
  const auto* const lse =
      reinterpret_cast<const float*>(payload.data() + decode_.size() * wire.q_row_bytes());
  const int first_head = peer_.address().first_kv_head * shape_.group();
  for (size_t i = 0; i < decode_.size(); ++i) {
    if (whole_[i]) continue;
    partials.Merge(decode_[i], {first_head, wire.num_heads, payload.data() + i * wire.q_row_bytes(),
                                wire.wire_dtype, lse + i * static_cast<size_t>(wire.num_heads)});
  }
}

}  // namespace lamina
