// How fabrics that move bytes over a NIC find each other: a TCP connection on which both ends say
// what they offer, and which stays open and silent afterwards, so that the end of the peer's
// process is noticed at once. Used by verbs and ucx; addresses are "host:port".
//
//   connection := greeting ready?                    ready: from the connecting end only
//   greeting   := RendezvousGreeting hello offer     hello: hello_bytes bytes; offer: offer_bytes
//   bytes, the fabric's own
//
//   connecting end                    accepting end
//   greeting           ->             EndpointOptions::may_join; Join: can receive from the peer,
//   and can send Join               <-             greeting Settle Settle ready: can receive ->
//   Finish: may post Finish: may post
//
// Thread: owner, for everything in here.
#pragma once

#include <array>
#include <bit>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "transport/poll_set.h"
#include "transport/tcp_socket.h"
#include "transport/transport.h"

namespace lamina {

static_assert(std::endian::native == std::endian::little,
              "wire structs are copied as they lie in memory");

inline constexpr std::array<char, 4> kRendezvousMagic = {'L', 'M', 'N', 'R'};
inline constexpr uint16_t kRendezvousVersion = 3;
inline constexpr size_t kMaxOfferBytes = size_t{16} << 10;

struct RendezvousGreeting {
  std::array<char, 4> magic = kRendezvousMagic;  // 0
  uint16_t version = kRendezvousVersion;         // 4
  uint16_t hello_bytes = 0;                      // 6   at most kMaxHelloBytes
  uint64_t window_bytes = 0;                     // 8   of the sender
  std::array<char, 8> kind = {};                 // 16  "verbs", "ucx": zero-padded
  uint32_t offer_bytes = 0;                      // 24  at most kMaxOfferBytes
  uint32_t reserved = 0;                         // 28
};
static_assert(sizeof(RendezvousGreeting) == 32 && offsetof(RendezvousGreeting, kind) == 16);

// An IPv4 address that is wrapped in IPv6, as sockets for both give it, as itself.
boost::asio::ip::address Unwrapped(const boost::asio::ip::address& address);

// What a peer has said. Sizes are checked; `offer` is as it came and not to be believed.
struct RendezvousPeer {
  std::string name;  // address, for messages
  std::string hello;
  uint64_t window_bytes = 0;
  std::string offer;
};

// The socket of one connection: non-blocking, closed by the destructor. Value type that can be
// moved.
class RendezvousLink {
 public:
  RendezvousLink(Tcp::socket socket, std::string name) : socket_(std::move(socket)) {
    peer_.name = std::move(name);
  }

  // At once: a greeting fits into the socket's buffer. kPeerLost if the peer is gone.
  Status SendGreeting(std::string_view kind, const EndpointOptions& options,
                      std::string_view offer);
  Status SendReady();

  // Read what the peer says as it comes, and no byte more. kTryAgain when more must come, kPeerLost
  // with the cause if the peer is gone or speaks something else; call no more then.
  Status ReceiveGreeting(std::string_view kind);
  Status ReceiveReady();

  // After the handshake: ok while the peer's process is there and silent, else kPeerLost with the
  // cause. One system call.
  Status CheckAlive();

  // Has EPOLLIN when one of the above has something to say.
  int fd() { return socket_.native_handle(); }
  const RendezvousPeer& peer() const { return peer_; }

  // The address of this machine that the connection goes through: it tells which NIC to use.
  // Unwrapped.
  Result<boost::asio::ip::address> LocalAddress() const;

 private:
  Status Send(const void* first, size_t first_bytes, std::string_view second,
              std::string_view third);
  Status Fill(char* into, size_t bytes);  // kTryAgain until all have come
  Status Check(std::string_view kind) const;

  enum class Part : uint8_t { kHeader, kHello, kOffer, kReady };

  Tcp::socket socket_;
  RendezvousPeer peer_;
  RendezvousGreeting greeting_;
  Part part_ = Part::kHeader;
  size_t have_bytes_ = 0;  // of the part that is being read
};

// One end of a connection while it is being made. Order of calls: Offer, Join, Settle, Finish.
class RendezvousEnd {
 public:
  virtual ~RendezvousEnd() = default;  // without Finish: the handshake was broken off

  // What the peer must know to reach this end; at most kMaxOfferBytes.
  virtual std::string Offer() const = 0;

  // Takes what the peer offers; the peer was there just before, and waits. When it returns ok, what
  // the peer posts is received. kPeerLost if the offer is nonsense; another error if this end
  // cannot go on.
  virtual Status Join(const RendezvousPeer& peer) = 0;

  // After Join: ok once the fabric gets through to the peer, which both ends wait for. kTryAgain
  // until then, called again and again; kPeerLost if it cannot.
  virtual Status Settle() { return OkStatus(); }

  // Both ends have joined and settled. The endpoint owns `link` and watches it.
  virtual Result<std::unique_ptr<Endpoint>> Finish(RendezvousLink link) = 0;
};

// What a fabric brings. Outlives the listeners that use it.
class RendezvousHost {
 public:
  virtual ~RendezvousHost() = default;

  virtual std::string_view name() const = 0;  // at most 8 characters
  virtual const Limits& limits() const = 0;
  virtual PollSet& poll_set() = 0;
  virtual boost::asio::io_context& io() = 0;  // never run: the sockets are non-blocking and polled

  // Ok if a listener may take peers at the address `local` of this machine. kNotFound as of NewEnd.
  virtual Status CheckAddress(const boost::asio::ip::address& /*local*/) { return OkStatus(); }

  // An end that is reached through the NIC of `local`. `options` have been checked. kNotFound if
  // there is none, naming those that there are; kOutOfSpace.
  virtual Result<std::unique_ptr<RendezvousEnd>> NewEnd(const boost::asio::ip::address& local,
                                                        const EndpointOptions& options) = 0;
};

// For Fabric::Connect.
Result<std::unique_ptr<Endpoint>> ConnectRendezvous(RendezvousHost& host,
                                                    const std::string& address,
                                                    const EndpointOptions& options,
                                                    Deadline deadline);

// For Fabric::Listen. The options of the Accept that finds a peer's greeting complete are those
// that the peer gets.
class RendezvousListener final : public Listener {
 public:
  // Errors as of ListenTcp and RendezvousHost::CheckAddress.
  static Result<std::unique_ptr<Listener>> Create(RendezvousHost& host, const std::string& address);
  ~RendezvousListener() override;

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override;
  const std::string& address() const override { return address_; }

 private:
  // A peer whose handshake is not complete.
  struct Pending {
    RendezvousLink link;
    std::string origin;
    TimePoint since;
    Deadline deadline;
    std::unique_ptr<RendezvousEnd> end = nullptr;  // once it has greeted
    bool is_ready = false;                         // it said so
  };

  RendezvousListener(RendezvousHost& host, Tcp::acceptor acceptor, std::string address);
  Status TakeNewPeers();
  void Drop(std::list<Pending>::iterator stranger);
  // Ok: the handshake is complete.
  Status Advance(Pending& pending, const EndpointOptions& options);
  Status Answer(Pending& pending, const EndpointOptions& options);

  RendezvousHost& host_;
  Tcp::acceptor acceptor_;
  const std::string address_;
  std::list<Pending> pending_;
};

}  // namespace lamina
