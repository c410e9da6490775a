// The receiving half of TcpEndpoint. The peer is not trusted: every header is checked before any
// byte goes into the window.
#include <boost/asio/buffer.hpp>
#include <cstring>

#include "transport/tcp/tcp_endpoint.h"

namespace lamina {
namespace {

using boost::system::error_code;
namespace asio = boost::asio;
using std::to_string;

constexpr uint64_t kLargePayload = 16384;  // bytes; see Read
// Bytes after which Poll returns, so that one fast peer does not starve the others.
constexpr size_t kMaxReadPerPoll = size_t{16} << 20;

}  // namespace

size_t TcpEndpoint::Receive(std::span<Event> out) {
  size_t count = 0;
  size_t read_bytes = 0;
  bool drained = false;
  while (true) {
    count += ParseStaged(out.subspan(count));
    if (drained || lost_ || count == out.size() || read_bytes >= kMaxReadPerPoll) return count;
    const size_t got = Read(drained);
    if (got == 0) return count;
    read_bytes += got;
  }
}

size_t TcpEndpoint::ParseStaged(std::span<Event> out) {
  size_t count = 0;
  while (in_frame_ || BeginFrame()) {
    ConsumePayload();
    if (payload_done_bytes_ < frame_.payload_bytes) break;
    if (frame_.has_notification != 0) {
      // No room for the notification: the frame stays the current one, and the next Poll goes on
      // here.
      if (count == out.size()) break;
      out[count++] = {.kind = Event::Kind::kNotification, .value = frame_.notification};
    }
    in_frame_ = false;
  }
  return count;
}

bool TcpEndpoint::BeginFrame() {
  if (staged_end_ - staged_begin_ < sizeof(frame_)) return false;
  std::memcpy(&frame_, staging_.data() + staged_begin_, sizeof(frame_));
  const uint64_t window_bytes = window_.bytes().size();
  if (frame_.magic != kTcpFrameMagic || frame_.has_notification > 1) {
    Lose("malformed frame: magic " + to_string(frame_.magic) + ", flag " +
         to_string(frame_.has_notification));
    return false;
  }
  if (frame_.checksum != frame_.Checksum() || frame_.sequence != next_received_) {
    Lose("malformed frame: frame " + to_string(next_received_) +
         " fails its checksum or is another one: it says " + to_string(frame_.sequence));
    return false;
  }
  if (frame_.window_offset > window_bytes ||
      frame_.payload_bytes > window_bytes - frame_.window_offset) {
    Lose("malformed frame: write of " + to_string(frame_.payload_bytes) + " bytes at " +
         to_string(frame_.window_offset) + " outside this end's window of " +
         to_string(window_bytes) + " bytes");
    return false;
  }
  staged_begin_ += sizeof(frame_);
  payload_done_bytes_ = 0;
  ++next_received_;
  in_frame_ = true;
  return true;
}

void TcpEndpoint::ConsumePayload() {
  const size_t part =
      std::min<size_t>(staged_end_ - staged_begin_, frame_.payload_bytes - payload_done_bytes_);
  if (part == 0) return;
  std::memcpy(window_.bytes().data() + frame_.window_offset + payload_done_bytes_,
              staging_.data() + staged_begin_, part);
  staged_begin_ += part;
  payload_done_bytes_ += part;
}

size_t TcpEndpoint::Read(bool& drained) {
  // At most a part of a header is staged, so little is moved: the rest has been parsed.
  std::memmove(staging_.data(), staging_.data() + staged_begin_, staged_end_ - staged_begin_);
  staged_end_ -= staged_begin_;
  staged_begin_ = 0;
  const size_t direct_bytes = in_frame_ ? frame_.payload_bytes - payload_done_bytes_ : 0;
  std::array<asio::mutable_buffer, 2> into;
  if (direct_bytes > 0) {  // the rest of the payload goes straight into the window
    into[0] = asio::buffer(window_.bytes().data() + frame_.window_offset + payload_done_bytes_,
                           direct_bytes);
  }
  // Behind a large payload another one is likely. Then only its header is staged, so that its
  // payload too goes straight into the window with the next read.
  const size_t staged_end =
      frame_.payload_bytes >= kLargePayload ? sizeof(frame_) : staging_.size();
  into[1] = asio::buffer(staging_.data() + staged_end_, staged_end - staged_end_);

  error_code error;
  // A single buffer makes a cheaper system call.
  const size_t got =
      direct_bytes > 0 ? socket_.read_some(into, error) : socket_.read_some(into[1], error);
  if (error == asio::error::would_block) {
    if (!write_error_.empty()) Lose(write_error_);
    return 0;
  }
  if (error) {
    Lose(error == asio::error::eof ? "the peer closed the connection" : "read: " + error.message());
    return 0;
  }
  const size_t direct = std::min(got, direct_bytes);
  payload_done_bytes_ += direct;
  drained = got < asio::buffer_size(into);  // then another call would find nothing
  staged_end_ += got - direct;
  return got;
}

}  // namespace lamina
