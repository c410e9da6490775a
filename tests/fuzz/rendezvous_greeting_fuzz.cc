// Feeds foreign bytes to the rendezvous that verbs and ucx use, in pieces. Whatever comes, it must
// say the same as when it comes at once, take no byte beyond the greeting and the ready byte, and
// allocate no more than the limits of the format.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "transport/rendezvous.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

struct Outcome {
  lamina::Status greeting = lamina::TryAgain(), ready = lamina::TryAgain();
  lamina::RendezvousPeer peer;
  size_t left_bytes = 0;  // not read

  bool operator==(const Outcome& other) const {
    return greeting.ToString() == other.greeting.ToString() &&
           ready.ToString() == other.ready.ToString() && peer.hello == other.peer.hello &&
           peer.offer == other.peer.offer && peer.window_bytes == other.peer.window_bytes &&
           left_bytes == other.left_bytes;
  }
};

Outcome Receive(std::string_view stream, size_t piece_bytes) {
  std::array<int, 2> ends{};
  Require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const lamina::UniqueFd sender(ends[1]);
  boost::asio::io_context io;
  lamina::Tcp::socket socket(io);
  socket.assign(lamina::Tcp::v4(), ends[0]);
  socket.non_blocking(true);
  lamina::RendezvousLink link(std::move(socket), "peer");

  Outcome outcome;
  size_t behind_end = 0;  // sent after the outcome stood
  do {
    const std::string_view piece = stream.substr(0, piece_bytes);
    stream.remove_prefix(piece.size());
    const bool over =
        (!outcome.greeting.ok() && outcome.greeting.code() != lamina::StatusCode::kTryAgain) ||
        outcome.ready.code() != lamina::StatusCode::kTryAgain;
    if (over) {
      behind_end += piece.size();
      continue;
    }
    Require(send(sender.get(), piece.data(), piece.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(piece.size()));
    if (!outcome.greeting.ok()) outcome.greeting = link.ReceiveGreeting("ucx");
    if (outcome.greeting.ok()) outcome.ready = link.ReceiveReady();
  } while (!stream.empty());
  outcome.peer = link.peer();
  char byte;
  while (recv(link.fd(), &byte, 1, MSG_DONTWAIT) == 1) ++outcome.left_bytes;
  outcome.left_bytes += behind_end;
  Require(outcome.peer.hello.size() <= lamina::kMaxHelloBytes);
  Require(outcome.peer.offer.size() <= lamina::kMaxOfferBytes);
  return outcome;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const size_t piece_bytes = data.ConsumeIntegralInRange<size_t>(1, 200);
  std::string stream;
  if (data.ConsumeBool()) {
    // A right beginning, as far as the sizes go.
    lamina::RendezvousGreeting greeting;
    std::memcpy(greeting.kind.data(), "ucx", 3);
    greeting.hello_bytes = data.ConsumeBool() ? data.ConsumeIntegralInRange<uint16_t>(0, 64)
                                              : data.ConsumeIntegral<uint16_t>();
    greeting.offer_bytes = data.ConsumeBool() ? data.ConsumeIntegralInRange<uint32_t>(0, 64)
                                              : data.ConsumeIntegral<uint32_t>();
    greeting.window_bytes = data.ConsumeIntegral<uint64_t>();
    stream.assign(reinterpret_cast<const char*>(&greeting), sizeof(greeting));
  }
  stream += data.ConsumeRemainingBytesAsString();
  if (stream.empty()) return 0;
  Require(Receive(stream, piece_bytes) == Receive(stream, stream.size()));
  return 0;
}
