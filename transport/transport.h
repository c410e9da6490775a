// The data path: moves bytes between two processes and tells the receiver when they are there. It
// knows no tensors or requests.
//
// Two endpoints make a connection. Each end owns a *window*: memory that only its peer writes into.
// A post copies bytes from local memory into the peer's window and then makes a 32-bit notification
// visible there, after all bytes written before it on this endpoint. Fabrics that can write into
// the peer's memory do so (shm, verbs, ucx); tcp sends frames that the peer copies. The caller sees
// no difference.
//
// The caller drives everything: nothing makes progress outside Post, Poll and Accept, none of them
// blocks, and a caller that has nothing to do sleeps on the fabric's event_fd(). There are no
// threads or callbacks behind this interface, and no locks but those of loopback.
//
//   Result<std::unique_ptr<Fabric>> fabric = OpenFabric("tcp");
//   Result<std::unique_ptr<Connecting>> connecting =
//       (*fabric)->StartConnect(address, options, deadline);
//   Result<std::unique_ptr<Endpoint>> peer = (*connecting)->Poll();  // kTryAgain: call it again
//   (*peer)->Post(ops, /*notify=*/7, tag);
//   while (size_t count = (*peer)->Poll(events)) ...   // kSent{tag}, kNotification{value}, ...
//   Sleep(**fabric, {}, deadline);                     // nothing came: wait for the next event
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// Memory from Fabric::Allocate: page-aligned, zeroed and registered with the fabric. On fabrics
// with Limits::registered_sources a write takes its source from here or from a window of the
// fabric. Owns the memory. REQUIRES at destruction: no post that has not completed reads from it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::span<std::byte> bytes() = 0;
};

// Bytes to put at [peer_offset, peer_offset + source.size()) of the peer's window.
struct WriteOp {
  std::span<const std::byte> source;
  uint64_t peer_offset = 0;
  // True: `peer_offset` counts in the peer's device window, and `source` lies in the device window
  // of this end. REQUIRES then: Endpoint::posts_to_device().
  bool to_device = false;
};

// What Poll returns.
struct Event {
  enum class Kind : uint8_t {
    // The post `tag` no longer reads its sources. `status` is kOk, or kPeerLost if the post may not
    // have arrived.
    kSent,
    // The bytes of the peer's post with notification `value` are visible in window().
    kNotification,
    // The peer is gone. Reported once, after the kSent of every outstanding post; no event follows.
    kPeerLost,
  };
  Kind kind = Kind::kSent;
  uint32_t value = 0;  // kNotification
  uint64_t tag = 0;    // kSent
  StatusCode status = StatusCode::kOk;
};

// A window in a device's memory, for the device of a peer; host code reads none of it. shm, which
// joins processes of one host, hands over `descriptor`, and the peer's device maps the memory.
// verbs registers the memory with the NIC, and posts with WriteOp::to_device write into it.
struct DeviceWindow {
  int descriptor = -1;  // which processes of this host can map; -1: none
  uint64_t bytes = 0;
  std::array<std::byte, 16> device{};  // identifies the device, the same in every process
  // Where this end's device sees its own window, for NICs of this host; null: NICs do not reach it.
  std::byte* data = nullptr;
  // A DMA-BUF of the memory at `data`; -1: NICs are given the address `data` itself.
  int dma_buf = -1;
};

// One connected peer. Thread: owner (one thread for a fabric and everything made by it).
// The destructor closes the connection, and the peer sees kPeerLost. After it the sources of posts
// that have not completed may be freed.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Writes `ops` in order into the peer's window, then delivers `notify`, if there is one. Borrows
  // the sources until Event{kSent, tag}. kTryAgain if the queue is full: Poll and try again.
  // kInvalidArgument if there are more ops than Limits::max_ops, one lies outside the peer's window
  // or, with verbs, a source is not registered or the post is too large for the NIC's queue. After
  // either nothing was posted. kPeerLost if the peer is gone; then no kSent follows for this post.
  // REQUIRES: the sources lie where Limits::registered_sources demands.
  virtual Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                      uint64_t tag) = 0;

  // Makes progress, fills `out` with up to out.size() events in order and returns how many. Never
  // blocks and never fails.
  virtual size_t Poll(std::span<Event> out) = 0;

  virtual std::span<std::byte> window() = 0;  // local memory that the peer writes into
  virtual uint64_t peer_window_bytes() const = 0;

  // The peer's window where this end has it mapped, else empty. A WriteOp whose source already lies
  // at its own place in there is not copied: a message that is built in place costs nothing to
  // post. The peer can read such bytes before the Post, but only the notification makes them valid.
  virtual std::span<std::byte> peer_window() { return {}; }

  // The device window that the peer offers, where this fabric carries one; else `bytes` is 0. The
  // endpoint owns the descriptor. Where posts reach the window (posts_to_device) `descriptor` is
  // -1.
  virtual DeviceWindow peer_device_window() const { return {}; }

  // Whether both ends have device windows and WriteOp::to_device goes from one to the other.
  virtual bool posts_to_device() const { return false; }

  virtual const std::string& peer_hello() const = 0;  // EndpointOptions::hello of the peer
  virtual const std::string& peer_name() const = 0;   // its address, for messages
  virtual std::string last_error() const = 0;         // why the peer was lost; "" while it is not

  // Names, for people, the transport below the fabric where the fabric's name does not say it. ucx
  // returns what UCX chose, such as "rc_verbs/mlx5_0:1".
  virtual std::string through() const { return ""; }
};

inline constexpr size_t kMaxHelloBytes = 4096;

// What one end offers to its peer.
struct EndpointOptions {
  uint64_t window_bytes = 0;  // size of the window that this end offers
  std::string hello;          // given to the peer; at most kMaxHelloBytes

  // Used by Accept: whether a peer with this hello may join. It is asked before the peer is told
  // anything (keys of memory, addresses, `hello`); a peer that may not is dropped. Null: every peer
  // may join.
  std::function<bool(const std::string& peer_hello)> may_join = nullptr;

  // The window's descriptors are borrowed until the endpoint exists or the Connecting is gone, its
  // memory as long as either of the two does.
  DeviceWindow device_window = {};
};

// Waits for peers at one address. Thread: owner.
class Listener {
 public:
  virtual ~Listener() = default;

  // The next peer whose handshake is complete; `options` is what this end offers it. kTryAgain if
  // there is none. A peer that breaks off its handshake, speaks another version or does not finish
  // within the fabric's handshake deadline is dropped and logged, never returned. kInvalidArgument
  // if `options` exceed the limits; kOutOfSpace if memory or descriptors run out.
  virtual Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) = 0;

  // What peers pass to Fabric::Connect. A port 0 that was asked for is the bound one here.
  virtual const std::string& address() const = 0;
};

// A connection that is being made. Destroying it gives the attempt up: the peer sees a handshake
// that breaks off or a lost connection, and nothing of it stays. Thread: owner of the fabric.
class Connecting {
 public:
  virtual ~Connecting() = default;

  // Goes on as far as that is possible without waiting for the peer. Returns the endpoint,
  // kTryAgain while the connection is under way, or why there will be none: kTimeout at the
  // deadline and kPeerLost name the address and the cause; kInvalidArgument if the address has
  // another form; kNotFound if the fabric has no NIC on the way to the address; kOutOfSpace if
  // memory or descriptors run out. Two things take time: registering a large window with a NIC, and
  // looking up the name of a host, which Listener::address never holds. REQUIRES: every call before
  // this one returned kTryAgain.
  virtual Result<std::unique_ptr<Endpoint>> Poll() = 0;

  // When to call Poll again at the latest; it may get further before that, and then the fabric's
  // event_fd() wakes its owner, as it does for endpoints. It is not after the deadline. REQUIRES:
  // Poll returned kTryAgain.
  virtual TimePoint wake_at() const = 0;
};

// What a fabric can do. An optional ability is a field here, instead of a virtual function that
// returns kUnimplemented.
struct Limits {
  size_t max_ops = 0;          // per post
  size_t max_outstanding = 0;  // posts of an endpoint that may be outstanding at a time
  uint64_t max_window_bytes = 0;
  // Sources must lie in Buffers of this fabric, or in windows of its endpoints.
  bool registered_sources = false;
  bool one_sided = false;  // a write needs no CPU of the receiver
};

// A transport opened on one machine. Thread: owner.
class Fabric {
 public:
  // REQUIRES: its endpoints, listeners, buffers and connections that are being made are gone.
  virtual ~Fabric() = default;

  virtual std::string_view name() const = 0;  // "tcp" | "shm" | "loopback" | ...
  virtual const Limits& limits() const = 0;

  // kOutOfSpace if the memory cannot be had, or cannot be registered.
  virtual Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;

  // The form of `address` depends on the fabric. tcp and ucx: "host:port" (port 0: any free one);
  // verbs: the same, where the host is the address of an RDMA port; shm: a name in the abstract
  // socket namespace, unique on the host; loopback: a name, unique in the process.
  // kInvalidArgument for an address of another form; kNotFound if the host is unknown or, with
  // verbs, no RDMA port has its address; kOutOfSpace if the address is in use.
  virtual Result<std::unique_ptr<Listener>> Listen(const std::string& address) = 0;

  // Begins to connect to the listener at `address`, which does not have to be there yet: attempts
  // are repeated until `deadline`. kInvalidArgument if `options` exceed the limits; kOutOfSpace if
  // memory runs out; other errors come from Connecting::Poll.
  virtual Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                           const EndpointOptions& options,
                                                           Deadline deadline) = 0;

  // StartConnect, and Poll until connected or `deadline`, whose errors it returns. Blocks; for
  // callers with nothing else on this fabric to look after.
  Result<std::unique_ptr<Endpoint>> Connect(const std::string& address,
                                            const EndpointOptions& options, Deadline deadline);

  // Prepares to sleep. If Arm() returns true, event_fd() becomes readable as soon as an endpoint,
  // a listener or a Connecting of this fabric may have something to poll or accept, or has room
  // again after a post got kTryAgain. If it returns false something is there already: poll instead
  // of sleeping. A wake-up may be spurious, but none is lost.
  virtual bool Arm() = 0;
  virtual int event_fd() const = 0;
};

// Opens the fabric `kind`: "tcp", "shm", "ucx", "verbs" or "loopback" (both ends in this process).
// kInvalidArgument for another kind, naming those that exist; kNotFound if this build or this
// machine lacks what the kind needs, naming it; kOutOfSpace if too few descriptors are left.
Result<std::unique_ptr<Fabric>> OpenFabric(std::string_view kind);

// Posts a message from this end's device window to the peer's, without a notification. The first
// eight bytes are written after the rest, so a device that sees them change finds the whole message
// there. Returns what Endpoint::Post returns. REQUIRES: endpoint.posts_to_device(), and at least
// eight bytes.
Status PostToDevice(Endpoint& endpoint, std::span<const std::byte> message, uint64_t peer_offset,
                    uint64_t tag);

// Sleeps until `fabric` or one of `fds` is readable, or `deadline`. Returns at once if Arm()
// returns false.
void Sleep(Fabric& fabric, std::span<const int> fds, Deadline deadline);

}  // namespace lamina
