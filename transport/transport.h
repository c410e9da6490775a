// Moves bytes between two processes and tells the receiver when they are there. Knows no tensors or
// requests.
//
// Two endpoints make a connection. Each end owns a *window*: memory that only its peer writes into.
// A post copies bytes from local memory into the peer's window and then makes a 32-bit notification
// visible there, after all bytes written before it on this endpoint. One-sided on fabrics that can
// (shm, verbs, ucx), framed on those that cannot (tcp); the caller sees no difference.
//
// The caller drives everything: nothing makes progress outside Post and Poll, nobody blocks inside
// them, and a caller that has nothing to do sleeps on the fabric's event_fd(). There are no
// threads, locks or callbacks in here.
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

// Memory from Fabric::Allocate: page-aligned, zeroed, registered with the fabric. Writes may take
// their source from nowhere else on fabrics with Limits::registered_sources. Freed by the
// destructor. REQUIRES at destruction: no uncompleted post reads from it.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::span<std::byte> bytes() = 0;
};

// Bytes to put at [peer_offset, peer_offset + source.size()) of the peer's window.
struct WriteOp {
  std::span<const std::byte> source;
  uint64_t peer_offset = 0;
  // Of the peer's device window instead; the source lies in this end's. Where
  // Endpoint::posts_to_device.
  bool to_device = false;
};

// What Poll returns.
struct Event {
  enum class Kind : uint8_t {
    // The post `tag` is done with its source memory. `status` kOk, or kPeerLost: the post may not
    // have arrived.
    kSent,
    kNotification,  // the peer's post with notification `value` is visible in window()
    // The peer is gone; said once, after the kSent of every outstanding post. Nothing follows.
    kPeerLost,
  };
  Kind kind = Kind::kSent;
  uint32_t value = 0;  // kNotification
  uint64_t tag = 0;    // kSent
  StatusCode status = StatusCode::kOk;
};

// Memory of a device, for the device of a peer. No host looks at it. Either it is handed over, by a
// fabric that joins processes of one host, and the peer's device maps it; or NICs read and write
// it, by posts (WriteOp::to_device).
struct DeviceWindow {
  int descriptor = -1;  // for processes of this host to map; -1: they cannot
  uint64_t bytes = 0;
  std::array<std::byte, 16> device{};  // which device has it, the same in every process
  // This end's, as its device sees it, for NICs of this host; null: they shall not reach it.
  std::byte* data = nullptr;
  // A DMA-BUF of the memory at `data`; -1: `data` is what NICs are given.
  int dma_buf = -1;
};

// One peer. Thread: owner (one thread for a fabric and everything made by it).
// The destructor closes the connection; the peer sees kPeerLost. Sources of uncompleted posts may
// be freed after it.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Writes `ops` in order into the peer's window, then delivers `notify` there. Borrows the sources
  // until Event{kSent, tag}. Returns kTryAgain if the queue is full (nothing was posted: Poll and
  // try again), kPeerLost if the peer is gone, kInvalidArgument if an op lies outside the peer's
  // window (nothing was posted).
  virtual Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                      uint64_t tag) = 0;

  // Makes progress, fills up to out.size() events in order, returns how many. Never blocks, never
  // fails.
  virtual size_t Poll(std::span<Event> out) = 0;

  virtual std::span<std::byte> window() = 0;  // local memory that the peer writes into
  virtual uint64_t peer_window_bytes() const = 0;

  // The peer's window where this end can reach it, else empty. A WriteOp whose source is its own
  // place in there is not copied: a message that is built in place costs nothing to post. The peer
  // may read such bytes before the Post; only its notification says that they count.
  virtual std::span<std::byte> peer_window() { return {}; }

  // What the peer has handed over, if this fabric can; the descriptor is the endpoint's. Where
  // posts reach it there is no descriptor.
  virtual DeviceWindow peer_device_window() const { return {}; }

  // Whether both ends have device windows that posts go from and to.
  virtual bool posts_to_device() const { return false; }

  virtual const std::string& peer_hello() const = 0;  // what the peer said at connect
  virtual const std::string& peer_name() const = 0;   // address, for messages
  virtual std::string last_error() const = 0;         // why the peer was lost, "" while it is not

  // What the fabric goes through to this peer where its name does not say so, for people: of ucx
  // "tcp/eth0", "rc_verbs/mlx5_0:1".
  virtual std::string through() const { return ""; }
};

inline constexpr size_t kMaxHelloBytes = 4096;

struct EndpointOptions {
  uint64_t window_bytes = 0;  // size of the window that this end offers
  std::string hello;          // handed to the peer; at most kMaxHelloBytes

  // For Accept: whether a peer with this hello may join, asked before it is told anything (keys of
  // memory, addresses, `hello`). One that may not is dropped, as one that breaks off its handshake.
  // Null: every peer may.
  std::function<bool(const std::string& peer_hello)> may_join = nullptr;

  // The descriptors are borrowed until the peer is there, its memory as long as the endpoint.
  DeviceWindow device_window = {};
};

// Waits for peers at one address. Thread: owner.
class Listener {
 public:
  virtual ~Listener() = default;

  // The next peer whose handshake is complete, or kTryAgain. A peer that breaks off its handshake,
  // speaks another version or does not finish within the fabric's handshake deadline is dropped and
  // logged, never returned. `options` is what this end offers.
  virtual Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) = 0;

  // As peers connect to it, with the port really bound.
  virtual const std::string& address() const = 0;
};

// Limits and costs that can be read, instead of virtuals that return kUnimplemented.
struct Limits {
  size_t max_ops = 0;          // per post
  size_t max_outstanding = 0;  // posts per endpoint before kTryAgain is possible
  uint64_t max_window_bytes = 0;
  // Sources must lie in Buffers of this fabric, or in windows of its endpoints.
  bool registered_sources = false;
  bool one_sided = false;  // no receiver CPU in a write
};

// A transport opened on one machine. Thread: owner.
class Fabric {
 public:
  virtual ~Fabric() = default;  // REQUIRES: its endpoints, listeners and buffers are gone

  virtual std::string_view name() const = 0;  // "tcp" | "shm" | "loopback" | ...
  virtual const Limits& limits() const = 0;

  virtual Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) = 0;

  // Addresses: tcp "host:port" (port 0: any free one), verbs the same with a host that is the
  // address of an RDMA port, shm "name" (a name in the abstract socket namespace, unique per host).
  virtual Result<std::unique_ptr<Listener>> Listen(const std::string& address) = 0;

  // Blocks until connected or `deadline`. Retries while the peer is not there yet. kTimeout and
  // kPeerLost name the address and the cause.
  virtual Result<std::unique_ptr<Endpoint>> Connect(const std::string& address,
                                                    const EndpointOptions& options,
                                                    Deadline deadline) = 0;

  // Sleeping: if Arm() returns true, event_fd() becomes readable as soon as any endpoint or
  // listener of this fabric may have something to poll or accept, or has room again after a post
  // got kTryAgain. If it returns false something is there already: poll instead of sleeping. A
  // wake-up may be spurious, never lost.
  virtual bool Arm() = 0;
  virtual int event_fd() const = 0;
};

// "tcp", "shm", "ucx" or "verbs" (or "loopback": both ends in this process). kInvalidArgument for
// another kind, naming those that exist; kNotFound if this build or this machine lacks what the
// kind needs, and what that is.
Result<std::unique_ptr<Fabric>> OpenFabric(std::string_view kind);

// Posts a message from this end's device window to the peer's, without a notification: its first
// eight bytes say that it is there, and are written after the rest. Errors as Endpoint::Post.
Status PostToDevice(Endpoint& endpoint, std::span<const std::byte> message, uint64_t peer_offset,
                    uint64_t tag);

// Sleeps until `fabric` or one of `fds` has something, or `deadline`. Returns at once if Arm() says
// so.
void Sleep(Fabric& fabric, std::span<const int> fds, Deadline deadline);

}  // namespace lamina
