#include "kernels/cuda/host/peer_window.h"

#include <algorithm>

namespace lamina::cuda {

Result<std::unique_ptr<PeerWindow>> PeerWindow::Map(int descriptor, size_t size_bytes) {
  std::unique_ptr<PeerWindow> window(new PeerWindow);
  LAMINA_ASSIGN_OR_RETURN(window->mapped_, SharedBuffer::Map(descriptor, size_bytes));
  window->data_ = window->mapped_->data();
  return window;
}

Result<std::unique_ptr<PeerWindow>> PeerWindow::ByPosts(std::byte* outbox, int num_lanes) {
  std::unique_ptr<PeerWindow> window(new PeerWindow);
  const auto count = static_cast<size_t>(num_lanes);
  LAMINA_ASSIGN_OR_RETURN(window->told_, PinnedBuffer::Create(count * sizeof(uint64_t)));
  std::fill_n(window->told_.as<uint64_t>(), count, 0);
  window->data_ = outbox;
  window->raised_.resize(count);
  return window;
}

void PeerWindow::Raise(const Place& place, const Flag& becomes, Waits& waits, Stream& stream) {
  auto* const flag = reinterpret_cast<Flag*>(at(place.offset));
  if (mapped_ != nullptr) return waits.Raise(flag, becomes, stream);
  // By posts: the flag is raised in the outbox, behind which `told_` says that it may leave.
  raised_[static_cast<size_t>(place.lane)].push_back(
      {becomes.number, place.offset, sizeof(Flag) + place.payload_bytes, &waits});
  waits.Raise(flag, becomes, stream, told_.as<uint64_t>() + place.lane);
}

Result<bool> PeerWindow::Carry(const Post& post) {
  bool any = false;
  for (size_t lane = 0; lane < raised_.size(); ++lane) {
    std::deque<Message>& raised = raised_[lane];
    while (!raised.empty()) {
      const Message& next = raised.front();
      const bool is_there =
          __atomic_load_n(told_.as<uint64_t>() + lane, __ATOMIC_ACQUIRE) >= next.number;
      // Kernels behind a wait that was given up never raise their flag: the message is dropped.
      if (!is_there && !next.waits->log().gave_up) break;
      const Status posted =
          is_there ? post({at(next.offset), next.bytes}, next.offset) : OkStatus();
      if (posted.code() == StatusCode::kTryAgain) return any;
      LAMINA_RETURN_IF_ERROR(posted);
      raised.pop_front();
      any = true;
    }
  }
  return any;
}

bool PeerWindow::carries() const {
  return std::ranges::any_of(raised_,
                             [](const std::deque<Message>& lane) { return !lane.empty(); });
}

}  // namespace lamina::cuda
