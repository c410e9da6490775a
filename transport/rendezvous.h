// How the ends of a fabric that moves bytes over a NIC find each other: on a TCP connection both
// say what the other must know (keys of memory, numbers of queue pairs, addresses). It stays open
// and silent afterwards, so that the end of the peer's process is noticed at once. verbs and ucx
// use it; addresses are "host:port".
//
//   connection := greeting ready?      ready: one byte, from the connecting end only
//   greeting   := RendezvousGreeting hello offer
//   hello      := hello_bytes bytes, EndpointOptions::hello
//   offer      := offer_bytes bytes, whose form is the fabric's own
//
//   connecting end                accepting end
//   greeting            ->
//                                 asks EndpointOptions::may_join
//                                 Join: from here on it receives, and can send
//                       <-        greeting
//   Join                          Settle
//   Settle
//   ready: can receive  ->
//   Finish: may post              Finish: may post
//
// A fabric implements RendezvousHost and RendezvousEnd, and calls StartRendezvous and
// RendezvousListener::Create. Thread: owner, for everything in here.
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
inline constexpr uint16_t kRendezvousVersion = 5;
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

// The IPv4 address that an IPv6 address of the form ::ffff:a.b.c.d stands for, as a socket of both
// families reports it; any other address as it is.
boost::asio::ip::address Unwrapped(const boost::asio::ip::address& address);

// What a peer has said in its greeting. The sizes are checked; `offer` is not, and a peer is not
// trusted.
struct RendezvousPeer {
  std::string name;  // address, for messages
  std::string hello;
  uint64_t window_bytes = 0;
  std::string offer;
};

// Owns the non-blocking socket of one connection, which its destructor closes. Can be moved.
class RendezvousLink {
 public:
  RendezvousLink(Tcp::socket socket, std::string name) : socket_(std::move(socket)) {
    peer_.name = std::move(name);
  }

  // Send the greeting of fabric `kind`, or the ready byte, without waiting: either fits into the
  // socket's buffer. kPeerLost if the peer is gone; kInternal if `offer` is too long.
  Status SendGreeting(std::string_view kind, const EndpointOptions& options,
                      std::string_view offer);
  Status SendReady();

  // Read the peer's greeting, or its ready byte, as far as it has come, and no byte beyond it.
  // kTryAgain if more must come: call again. kPeerLost with the cause if the peer is gone, breaks
  // the protocol or speaks for another fabric than `kind`.
  Status ReceiveGreeting(std::string_view kind);
  Status ReceiveReady();

  // Ok while the peer's process is there and silent, as it must be where the protocol has nothing
  // for it to say; else kPeerLost with the cause. One system call.
  Status CheckAlive();

  // Readable when ReceiveGreeting, ReceiveReady or CheckAlive has something new to report.
  int fd() { return socket_.native_handle(); }
  const RendezvousPeer& peer() const { return peer_; }

  // The address of this machine that the connection uses, Unwrapped: it tells which NIC leads to
  // the peer. kPeerLost if the socket has none any more.
  Result<boost::asio::ip::address> LocalAddress() const;

 private:
  Status Send(const void* first, size_t first_bytes, std::string_view second,
              std::string_view third);
  Status Fill(char* into, size_t bytes);  // kTryAgain until `bytes` bytes have come
  Status Check(std::string_view kind) const;

  enum class Part : uint8_t { kHeader, kHello, kOffer, kReady };

  Tcp::socket socket_;
  RendezvousPeer peer_;
  RendezvousGreeting greeting_;
  Part part_ = Part::kHeader;
  size_t have_bytes_ = 0;  // of the part that is being read
};

// One end of a connection while it is being made, implemented by the fabric. The connecting end
// calls Offer, Join, Settle, Finish; the accepting end Join, Offer, Settle, Finish. If it is
// destroyed without Finish, the handshake has failed.
class RendezvousEnd {
 public:
  virtual ~RendezvousEnd() = default;

  // What the peer must know to reach this end; at most kMaxOfferBytes bytes.
  virtual std::string Offer() const = 0;

  // Takes the peer's offer. The peer was alive just before and waits for the rest of the handshake.
  // From the return on, what the peer posts is received. kPeerLost if the offer is malformed;
  // another error if this end cannot go on.
  virtual Status Join(const RendezvousPeer& peer) = 0;

  // Called after Join, again and again while it returns kTryAgain. Ok once bytes get through to the
  // peer over the fabric; kPeerLost if they cannot. Both ends wait for it.
  virtual Status Settle() { return OkStatus(); }

  // Called once both ends have joined and settled. The endpoint takes `link` and watches it.
  virtual Result<std::unique_ptr<Endpoint>> Finish(RendezvousLink link) = 0;
};

// What a fabric provides to the rendezvous. Outlives the listeners that use it.
class RendezvousHost {
 public:
  virtual ~RendezvousHost() = default;

  virtual std::string_view name() const = 0;  // at most 8 characters
  virtual const Limits& limits() const = 0;
  virtual PollSet& poll_set() = 0;
  virtual boost::asio::io_context& io() = 0;  // never run: the sockets are non-blocking and polled

  // Ok if a listener may accept peers at the address `local` of this machine; kNotFound if no NIC
  // of the fabric has it, naming the NICs that there are.
  virtual Status CheckAddress(const boost::asio::ip::address& /*local*/) { return OkStatus(); }

  // An end that is reached through the NIC with the address `local`. REQUIRES: CheckOptions of
  // `options` was ok. kNotFound if no NIC has the address, naming the NICs that there are;
  // kOutOfSpace if memory or the NIC's resources run out.
  virtual Result<std::unique_ptr<RendezvousEnd>> NewEnd(const boost::asio::ip::address& local,
                                                        const EndpointOptions& options) = 0;
};

// Implements Fabric::StartConnect, whose errors it returns. `host` outlives the connection that is
// being made.
Result<std::unique_ptr<Connecting>> StartRendezvous(RendezvousHost& host,
                                                    const std::string& address,
                                                    const EndpointOptions& options,
                                                    Deadline deadline);

// Implements Fabric::Listen. A handshake takes several calls of Accept; the peer gets the options
// of the call that finds its greeting complete.
class RendezvousListener final : public Listener {
 public:
  // kInvalidArgument for an address that cannot be used; kNotFound if its host is unknown or
  // RendezvousHost::CheckAddress refuses it; kOutOfSpace if the port is in use.
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
    std::unique_ptr<RendezvousEnd> end = nullptr;  // null until the peer's greeting is complete
    bool is_ready = false;                         // the peer has sent its ready byte
  };

  RendezvousListener(RendezvousHost& host, Tcp::acceptor acceptor, std::string address);
  Status TakeNewPeers();
  // The next peer whose handshake is complete, of those that were taken.
  Result<std::unique_ptr<Endpoint>> TakeGreeted(const EndpointOptions& options);
  void Drop(std::list<Pending>::iterator stranger);
  // Ok when the handshake is complete, kTryAgain while it goes on.
  Status Advance(Pending& pending, const EndpointOptions& options);
  // Makes this end, joins the peer and sends the greeting.
  Status Answer(Pending& pending, const EndpointOptions& options);

  RendezvousHost& host_;
  Tcp::acceptor acceptor_;
  const std::string address_;
  std::list<Pending> pending_;
};

}  // namespace lamina
