#include "transport/tcp/zero_copy.h"

#include <sys/socket.h>
#include <time.h>

#include <linux/errqueue.h>  // needs time.h before it

#include <algorithm>
#include <array>
#include <cstring>

#include "base/log.h"

namespace lamina {

ZeroCopySends::ZeroCopySends(int socket) : socket_(socket) {
  // Fails where the kernel has no MSG_ZEROCOPY (before Linux 4.14): then all sends copy.
  const int on = 1;
  is_on_ = setsockopt(socket_, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) == 0;
}

int ZeroCopySends::FlagsFor(size_t bytes) const {
  return is_on_ && bytes >= kMinZeroCopyBytes ? MSG_ZEROCOPY : 0;
}

void ZeroCopySends::Collect() {
  bool was_copied = false;
  while (num_done_ != num_sent_) {
    std::array<std::byte, 256> control;
    msghdr message{};
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(socket_, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) break;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      if (part->cmsg_len < CMSG_LEN(sizeof(sock_extended_err))) continue;
      sock_extended_err notice;
      std::memcpy(&notice, CMSG_DATA(part), sizeof(notice));
      if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY || notice.ee_errno != 0) continue;
      // ee_info and ee_data are the first and the last send of a range that is done.
      if ((notice.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0) was_copied = true;
      Take(notice.ee_info, notice.ee_data);
    }
  }
  if (was_copied && is_on_) {
    LAMINA_LOG_DEBUG(
        "tcp: the kernel copies what it sends on this connection anyway, so zero-copy is off for "
        "it");
    Stop();
  }
}

void ZeroCopySends::Take(uint32_t first, uint32_t last) {
  done_early_.emplace_back(first, last);
  const auto is_next = [&](const auto& range) { return range.first == num_done_; };
  for (auto next = done_early_.begin(); (next = std::find_if(done_early_.begin(), done_early_.end(),
                                                             is_next)) != done_early_.end();) {
    num_done_ = next->second + 1;
    done_early_.erase(next);
  }
}

}  // namespace lamina
