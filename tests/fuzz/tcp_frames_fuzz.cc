// Feeds foreign bytes to an endpoint of the tcp fabric, in pieces. A plain reader of the format in
// tcp_wire.h, which sees all bytes at once, says what the window must hold afterwards, which
// notifications must have come, and whether the connection must be lost.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "transport/mapping.h"
#include "transport/tcp/tcp_endpoint.h"
#include "transport/tcp/tcp_wire.h"

namespace {

constexpr size_t kWindowBytes = 1000;

void Require(bool holds) {
  if (!holds) std::abort();
}

struct Outcome {
  std::string window = std::string(kWindowBytes, '\0');
  std::vector<uint32_t> notifications;
  bool lost = false;
  bool operator==(const Outcome&) const = default;
};

Outcome Expected(std::string_view stream) {
  Outcome outcome;
  lamina::TcpFrame frame;
  for (uint32_t sequence = 0; stream.size() >= sizeof(frame); ++sequence) {
    std::memcpy(&frame, stream.data(), sizeof(frame));
    stream.remove_prefix(sizeof(frame));
    outcome.lost = frame.magic != lamina::kTcpFrameMagic || frame.has_notification > 1 ||
                   frame.checksum != frame.Checksum() || frame.sequence != sequence ||
                   frame.window_offset > kWindowBytes ||
                   frame.payload_bytes > kWindowBytes - frame.window_offset;
    if (outcome.lost) break;
    const std::string_view payload = stream.substr(0, frame.payload_bytes);
    outcome.window.replace(frame.window_offset, payload.size(), payload);
    stream.remove_prefix(payload.size());
    if (payload.size() < frame.payload_bytes) break;
    if (frame.has_notification == 1) outcome.notifications.push_back(frame.notification);
  }
  return outcome;
}

// Foreign bytes, and between them frames whose checksum and sequence number are right.
std::string Stream(FuzzedDataProvider& data) {
  std::string stream;
  uint32_t sequence = 0;
  while (data.remaining_bytes() > 0) {
    if (data.ConsumeIntegralInRange(0, 7) == 0) {
      stream += data.ConsumeRandomLengthString();
      continue;
    }
    lamina::TcpFrame frame;
    frame.has_notification = data.ConsumeIntegralInRange<uint16_t>(0, 2);
    frame.notification = data.ConsumeIntegral<uint32_t>();
    frame.window_offset = data.ConsumeBool() ? data.ConsumeIntegralInRange<uint64_t>(0, 1001)
                                             : data.ConsumeIntegral<uint64_t>();
    const std::string payload = data.ConsumeRandomLengthString(1200);
    frame.payload_bytes =
        data.ConsumeIntegralInRange(0, 7) > 0 ? payload.size() : data.ConsumeIntegral<uint64_t>();
    frame.sequence = data.ConsumeIntegralInRange(0, 15) > 0 ? sequence : sequence + 1;
    frame.checksum = frame.Checksum();
    ++sequence;
    stream.append(reinterpret_cast<const char*>(&frame), sizeof(frame)).append(payload);
  }
  return stream;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const size_t piece_bytes = data.ConsumeIntegralInRange<size_t>(1, 3000);
  const size_t events_per_poll = data.ConsumeIntegralInRange<size_t>(1, 4);
  const std::string stream = Stream(data);

  std::array<int, 2> ends{};
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const lamina::UniqueFd peer(ends[1]);
  lamina::TcpContext context;
  lamina::Tcp::socket socket(context.io);
  socket.assign(lamina::Tcp::v4(), ends[0]);
  socket.non_blocking(true);
  auto window = lamina::Mapping::Anonymous(kWindowBytes);
  Require(window.ok());
  lamina::TcpEndpoint endpoint(context, std::move(socket), std::move(*window), {"peer", "", 0});

  Outcome outcome;
  const auto poll = [&] {
    // Not every poll looks at the socket.
    for (int silent = 0; silent < 32; ++silent) {
      std::array<lamina::Event, 4> events;
      const size_t count = endpoint.Poll(std::span(events).first(events_per_poll));
      Require(count <= events_per_poll);
      for (size_t i = 0; i < count; ++i) {
        silent = 0;
        Require(!outcome.lost);
        if (events[i].kind == lamina::Event::Kind::kNotification) {
          outcome.notifications.push_back(events[i].value);
        } else {
          Require(events[i].kind == lamina::Event::Kind::kPeerLost);
          outcome.lost = true;
        }
      }
    }
  };
  for (size_t sent = 0; sent < stream.size() && !outcome.lost; sent += piece_bytes) {
    const std::string piece = stream.substr(sent, piece_bytes);
    Require(send(peer.get(), piece.data(), piece.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(piece.size()));
    poll();
  }
  const std::span<const std::byte> written = endpoint.window();
  outcome.window.assign(reinterpret_cast<const char*>(written.data()), kWindowBytes);
  Require(outcome == Expected(stream));
  if (outcome.lost) Require(!endpoint.last_error().empty());
  return 0;
}
