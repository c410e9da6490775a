#include "compute_node/decode_by_devices.h"

#include <array>
#include <utility>

namespace lamina {

void DecodeByDevices::Send() {
  const WireShape& wire = peer_.wire();
  const RowParts stored = rows_.KvHeads(rows_.stored());
  const std::array<PackedParts, 3> qkv = {
      PackedParts{step_.layer.q, rows_.Heads(rows_.decode()), wire.wire_dtype},
      PackedParts{step_.layer.k, stored, wire.kv_dtype, wire.head_dim},
      PackedParts{step_.layer.v, stored, wire.kv_dtype, wire.head_dim}};
  lane_.Post(AboutMessage(step_.id.value, rows_.decode().size(), rows_.stored().size()), qkv);
  state_ = State::kPosted;
  for (const PackedParts& part : qkv) step_.traffic.sent_bytes += part.num_bytes();
}

bool DecodeByDevices::missing() const { return !peer_.lost() && lane_.carries(); }

// The next slice may be queued behind this wait, before the reply is there, unless this host has a
// part in what follows. It has one where partials are merged, at the end of a step, when it checks
// that the replies came at all, and where it posts messages for NICs. With several batches under
// way it also has one: it sees to it that the device does not wait for one batch while it could run
// slices of another.
bool DecodeByDevices::Await() {
  if (state_ != State::kPosted || peer_.lost()) return false;
  ahead_ = RunsAhead();
  lane_.Await(ahead_);
  state_ = State::kAwaited;
  if (ahead_) UnpackWhole();
  fetches_ = !ahead_ || rows_.wants_lse() || step_.layer.layer == session_.options.num_layers - 1;
  if (fetches_) lane_.Fetch(rows_.wants_lse() ? rows_.OutputBytes() : 0);
  return false;
}

bool DecodeByDevices::RunsAhead() const {
  return session_.num_steps <= 1 && !session_.peers.posts_for_device();
}

void DecodeByDevices::UnpackWhole() {
  rows_.ForEachWhole([&](size_t offset, const RowParts& whole) {
    lane_.Unpack(offset, peer_.wire().wire_dtype, whole, step_.layer.out);
  });
}

bool DecodeByDevices::fetching() const {
  return state_ == State::kAwaited && fetches_ && !peer_.lost() && !lane_.fetched();
}

void DecodeByDevices::Take() {
  if (std::exchange(state_, State::kIdle) == State::kAwaited && !peer_.lost()) TakeOutcome();
}

void DecodeByDevices::TakeOutcome() {
  step_.traffic.received_bytes +=
      static_cast<int64_t>(rows_.decode().size() * peer_.wire().q_row_bytes());
  if (!fetches_) return;
  step_.traffic.wait_us += peer_.TakeDeviceWaitUs();
  const Status outcome = lane_.outcome();
  if (outcome.code() == StatusCode::kTimeout) {
    session_.peers.LoseLate(peer_, step_.Traced(rows_.decode().size()), "the attention output");
  } else if (!outcome.ok()) {
    const Status status = outcome.WithContext("memory node " + peer_.name());
    for (const int row : rows_.decode()) step_.Fail(row, status);
  }
  if (!outcome.ok()) return;
  if (!ahead_) UnpackWhole();
  if (rows_.wants_lse()) rows_.MergeOthers(lane_.payload(), step_.partials);
}

}  // namespace lamina
