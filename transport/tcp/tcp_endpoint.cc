#include "transport/tcp/tcp_endpoint.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "transport/checks.h"

namespace lamina {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;

// Room for many small frames per system call. The bulk of a large payload bypasses it.
constexpr size_t kStagingBytes = size_t{64} << 10;
// Buffers per system call: as many as Asio hands to the kernel at once.
constexpr size_t kMaxGather = 64;
// At the latest every so many polls one reads the socket, however many events the others have.
constexpr uint32_t kPollsPerRead = 8;

}  // namespace

TcpEndpoint::TcpEndpoint(TcpContext& context, Tcp::socket socket, Mapping window, Peer peer)
    : context_(context),
      socket_(std::move(socket)),
      window_(std::move(window)),
      peer_(std::move(peer)),
      posts_(kTcpLimits.max_outstanding),
      zero_copy_(socket_.native_handle()),
      staging_(kStagingBytes) {
  context_.endpoints.push_back(this);
  context_.poll_set.Add(socket_.native_handle(), EPOLLIN, this);
}

TcpEndpoint::~TcpEndpoint() {
  std::erase(context_.endpoints, this);
  if (!lost_) context_.poll_set.Remove(socket_.native_handle());  // else Lose has removed it
}

void TcpEndpoint::Outgoing::Encode(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                                   uint64_t post_tag, uint32_t& next_sequence) {
  tag = post_tag;
  next_buffer = 0;
  num_buffers = 0;
  size_t num_frames = 0;
  // The headers are members, as the socket may take them long after Post has returned.
  const auto add = [&](const WriteOp& op) {
    TcpFrame& frame = frames[num_frames++];
    frame = {.window_offset = op.peer_offset,
             .payload_bytes = op.source.size(),
             .sequence = next_sequence++};
    Append(asio::buffer(&frame, sizeof(frame)));
    if (!op.source.empty()) Append(asio::buffer(op.source.data(), op.source.size()));
  };
  for (const WriteOp& op : ops) {
    if (!op.source.empty()) add(op);
  }
  if (notify.has_value()) {
    if (num_frames == 0) add({});                 // a frame without payload
    frames[num_frames - 1].has_notification = 1;  // the last frame of the post carries it
    frames[num_frames - 1].notification = *notify;
  }
  for (size_t i = 0; i < num_frames; ++i) frames[i].checksum = frames[i].Checksum();
  if (num_buffers > 1 &&
      asio::buffer_size(std::span(buffers).first(num_buffers)) <= together.size()) {
    const size_t bytes =
        asio::buffer_copy(asio::buffer(together), std::span(buffers).first(num_buffers));
    num_buffers = 0;
    Append(asio::buffer(together.data(), bytes));
  }
}

Status TcpEndpoint::Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                         uint64_t tag) {
  LAMINA_RETURN_IF_ERROR(CheckOps(ops, kTcpLimits, peer_.window_bytes));
  if (lost_) return PeerLost(last_error_);
  if (!write_error_.empty()) return PeerLost(peer_.name + ": " + write_error_);
  if (posts_.full()) return TryAgain();
  posts_.PushSlot().Encode(ops, notify, tag, next_sequence_);
  // If no older post waits to be written, this one is written now, as most are.
  if (num_written_ + 1 == posts_.size()) Flush();
  return OkStatus();
}

void TcpEndpoint::Flush() {
  while (num_written_ < posts_.size() && write_error_.empty()) {
    std::array<asio::const_buffer, kMaxGather> gather;
    size_t count = 0;
    for (size_t i = num_written_; i < posts_.size() && count < kMaxGather; ++i) {
      const Outgoing& post = posts_[i];
      for (size_t b = post.next_buffer; b < post.num_buffers && count < kMaxGather; ++b)
        gather[count++] = post.buffers[b];
    }
    size_t written = 0;
    if (count > 0) {
      error_code error;
      written = Write({gather.data(), count}, error);
      if (error == asio::error::would_block) return;
      if (error) write_error_ = "write: " + error.message();
    }
    Advance(written);
  }
}

size_t TcpEndpoint::Write(std::span<const asio::const_buffer> buffers, error_code& error) {
  const int flags = zero_copy_.FlagsFor(asio::buffer_size(buffers));
  // A single buffer makes a cheaper system call (send instead of sendmsg).
  size_t written = buffers.size() == 1 ? socket_.send(buffers.front(), flags, error)
                                       : socket_.send(buffers, flags, error);
  if (flags != 0 && error == asio::error::no_buffer_space) {
    zero_copy_.Stop();
    written = socket_.send(buffers, 0, error);
  } else if (flags != 0 && !error) {
    zero_copy_.CountSend();
  }
  return written;
}

void TcpEndpoint::Advance(size_t written_bytes) {
  for (; num_written_ < posts_.size(); ++num_written_) {
    Outgoing& post = posts_[num_written_];
    for (; post.next_buffer < post.num_buffers; ++post.next_buffer) {
      asio::const_buffer& buffer = post.buffers[post.next_buffer];
      const size_t part = std::min(written_bytes, buffer.size());
      buffer += part;
      written_bytes -= part;
      if (buffer.size() > 0) return;
    }
    // Sends made so far may read this post's sources: it is done when all of them are.
    post.num_sends = zero_copy_.num_sent();
  }
}

size_t TcpEndpoint::Poll(std::span<Event> out) {
  if (!lost_ && num_written_ < posts_.size()) Flush();
  // Also while the post is only partly written: a report that stays in the socket's error queue
  // would wake a sleeping owner again and again.
  if (!lost_) zero_copy_.Collect();
  size_t count = TakeSent(out);
  // A poll that has events already does without the system call that looks for more.
  if (count > 0 && !lost_ && ++polls_since_read_ < kPollsPerRead) {
    stopped_early_ = true;
    return count;
  }
  polls_since_read_ = 0;
  if (!lost_) count += Receive(out.subspan(count));
  if (lost_) count += TakeLost(out.subspan(count));
  stopped_early_ = count == out.size();
  return count;
}

size_t TcpEndpoint::TakeSent(std::span<Event> out) {
  size_t count = 0;
  for (; num_written_ > 0 && count < out.size() &&
         (lost_ || zero_copy_.AreDone(posts_.front().num_sends));
       --num_written_, posts_.Pop()) {
    out[count++] = {.kind = Event::Kind::kSent, .tag = posts_.front().tag};
  }
  return count;
}

size_t TcpEndpoint::TakeLost(std::span<Event> out) {
  // Written posts are reported as sent, then the others as lost.
  size_t count = TakeSent(out);
  for (; !posts_.empty() && count < out.size(); posts_.Pop()) {
    out[count++] = {
        .kind = Event::Kind::kSent, .tag = posts_.front().tag, .status = StatusCode::kPeerLost};
  }
  if (posts_.empty() && !said_lost_ && count < out.size()) {
    said_lost_ = true;
    out[count++] = {.kind = Event::Kind::kPeerLost, .status = StatusCode::kPeerLost};
  }
  return count;
}

bool TcpEndpoint::PrepareSleep() {
  if (lost_) return said_lost_;
  if (stopped_early_ || (num_written_ > 0 && zero_copy_.AreDone(posts_.front().num_sends)))
    return false;
  const bool wants_writable = num_written_ < posts_.size() && write_error_.empty();
  if (wants_writable != wants_writable_) {
    wants_writable_ = wants_writable;
    context_.poll_set.Modify(socket_.native_handle(), wants_writable ? EPOLLIN | EPOLLOUT : EPOLLIN,
                             this);
  }
  // After a failed write the next Poll still reads what the peer sent before, and then ends the
  // connection.
  return write_error_.empty();
}

void TcpEndpoint::Lose(const std::string& cause) {
  lost_ = true;
  last_error_ = peer_.name + ": " + cause;
  LAMINA_LOG_DEBUG("tcp: {}", last_error_);
  context_.poll_set.Remove(socket_.native_handle());
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace lamina
