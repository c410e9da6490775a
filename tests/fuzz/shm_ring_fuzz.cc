// Plays a peer of the shm fabric that writes foreign numbers into the ring and the tail which both
// ends share. The endpoint must return the notifications that stand in order, lose a peer that
// writes an impossible number, and never post beyond the peer's window.
#include <fcntl.h>
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

#include "transport/mapping.h"
#include "transport/sealed_memory.h"
#include "transport/shm/shm_endpoint.h"
#include "transport/shm/shm_segment.h"

namespace {

constexpr uint64_t kWindowBytes = 256;

void Require(bool holds) {
  if (!holds) std::abort();
}

// What a foreign process does to the two segments, and what this end must make of it.
class Peer {
 public:
  Peer() {
    std::array<int, 2> ends{};
    Require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) ==
            0);
    socket_ = lamina::UniqueFd(ends[1]);
    auto ours = lamina::CreateSealedMemory(lamina::kShmControlBytes + kWindowBytes);
    auto theirs = lamina::CreateSealedMemory(lamina::kShmControlBytes + kWindowBytes);
    Require(ours.ok() && theirs.ok());
    auto mapped = lamina::Mapping::Shared(ours->get(), lamina::kShmControlBytes + kWindowBytes);
    auto own = lamina::Mapping::Shared(ours->get(), lamina::kShmControlBytes + kWindowBytes);
    auto other = lamina::Mapping::Shared(theirs->get(), lamina::kShmControlBytes + kWindowBytes);
    Require(mapped.ok() && own.ok() && other.ok());
    ring_segment_ = std::move(*mapped);
    tail_segment_ = std::move(*other);
    lamina::ShmPeer peer;
    peer.name = "peer";
    peer.window_bytes = kWindowBytes;
    peer.segment = std::move(*theirs);
    peer.wake = lamina::UniqueFd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    auto endpoint = lamina::ShmEndpoint::Create(context_, lamina::UniqueFd(ends[0]),
                                                std::move(*own), std::move(peer));
    Require(endpoint.ok());
    endpoint_.reset(static_cast<lamina::ShmEndpoint*>(endpoint->release()));
  }

  // A notification as a correct peer writes it.
  void Notify(uint32_t value) {
    if (num_notified_ - num_taken_ == lamina::kShmRingSlots) return;
    ++num_notified_;
    Ring()[(num_notified_ - 1) % lamina::kShmRingSlots].store(uint64_t{num_notified_} << 32 |
                                                              value);
    expected_.push_back(value);
  }

  // Any number in the slot that is read next but `distance`. The endpoint may take it for what it
  // says, so nothing of the values is expected from now on.
  void WriteSlot(uint32_t distance, uint64_t number) {
    Ring()[(num_taken_ + distance) % lamina::kShmRingSlots].store(number);
    is_foreign_ = true;
  }

  void WriteTail(uint32_t tail) {
    reinterpret_cast<lamina::ShmControl*>(tail_segment_.bytes().data())->tail.store(tail);
    has_foreign_tail_ = true;
  }

  void Post(uint64_t offset, size_t bytes, bool notify) {
    const std::vector<std::byte> source(bytes, std::byte{7});
    const std::array<lamina::WriteOp, 1> ops = {
        lamina::WriteOp{.source = source, .peer_offset = offset}};
    const lamina::Status status = endpoint_->Post(
        ops, notify ? std::optional<uint32_t>(1) : std::nullopt, /*tag=*/num_posts_);
    const bool fits = offset <= kWindowBytes && bytes <= kWindowBytes - offset;
    if (!fits) Require(status.code() == lamina::StatusCode::kInvalidArgument);
    if (status.ok()) {
      Require(fits && !was_lost_);
      ++num_posts_;
    }
  }

  void Sleep() {
    if (!was_lost_) endpoint_->AnnounceSleep();
    endpoint_->HasWork();
  }

  void Poll(size_t max_events) {
    std::array<lamina::Event, 8> events;
    const size_t count = endpoint_->Poll(std::span(events).first(max_events));
    Require(count <= max_events);
    for (size_t i = 0; i < count; ++i) {
      Require(!was_lost_);
      switch (events[i].kind) {
        case lamina::Event::Kind::kNotification:
          if (!is_foreign_)
            Require(num_read_ < expected_.size() && events[i].value == expected_[num_read_]);
          ++num_read_;
          ++num_taken_;
          break;
        case lamina::Event::Kind::kSent:
          Require(events[i].tag == num_sent_);
          ++num_sent_;
          break;
        case lamina::Event::Kind::kPeerLost:
          Require(is_foreign_ || has_foreign_tail_);
          Require(!endpoint_->last_error().empty());
          was_lost_ = true;
      }
    }
  }

  // Without foreign numbers all has come, and the peer is there.
  void Finish() {
    for (int i = 0; i < 1000; ++i) Poll(8);
    Require(num_sent_ == num_posts_ || was_lost_);
    if (!is_foreign_ && !has_foreign_tail_) Require(!was_lost_ && num_read_ == expected_.size());
  }

 private:
  std::atomic<uint64_t>* Ring() {
    return reinterpret_cast<lamina::ShmControl*>(ring_segment_.bytes().data())->ring;
  }

  lamina::ShmContext context_;
  lamina::UniqueFd socket_;
  lamina::Mapping ring_segment_;  // the endpoint's own: the peer writes its ring
  lamina::Mapping tail_segment_;  // the peer's: the peer writes its tail
  std::unique_ptr<lamina::ShmEndpoint> endpoint_;
  uint32_t num_notified_ = 0, num_taken_ = 0;
  std::vector<uint32_t> expected_;
  size_t num_read_ = 0;
  uint64_t num_posts_ = 0, num_sent_ = 0;
  bool is_foreign_ = false, has_foreign_tail_ = false, was_lost_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  Peer peer;
  while (data.remaining_bytes() > 0) {
    switch (data.ConsumeIntegralInRange(0, 6)) {
      case 0:
        peer.WriteSlot(data.ConsumeIntegralInRange<uint32_t>(0, 3),
                       data.ConsumeIntegral<uint64_t>());
        break;
      case 1: peer.WriteTail(data.ConsumeIntegral<uint32_t>()); break;
      case 2:
        peer.Post(data.ConsumeBool() ? data.ConsumeIntegralInRange<uint64_t>(0, 300)
                                     : data.ConsumeIntegral<uint64_t>(),
                  data.ConsumeIntegralInRange<size_t>(0, 300), data.ConsumeBool());
        break;
      case 3: peer.Sleep(); break;
      case 4:
        for (int i = data.ConsumeIntegralInRange(1, 600); i > 0; --i) peer.Post(0, 1, true);
        break;
      case 5: peer.Poll(data.ConsumeIntegralInRange<size_t>(1, 8)); break;
      default: peer.Notify(data.ConsumeIntegral<uint32_t>());
    }
  }
  peer.Finish();
  return 0;
}
