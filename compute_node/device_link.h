// A compute node's way to a memory node where messages go from device to device, by device windows
// (wire/wire_format.h): kernels write q, k and v, and the device waits for the outputs itself.
// Everything is only asked for, in the order of the slices: a step's layers can be asked for one
// after the other before the first of them has run, unless this host posts the messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"
#include "base/status.h"
#include "transport/transport.h"

namespace lamina {

struct PackedParts;
struct RowParts;

// Thread: one owner, the device's.
class DeviceLink {
 public:
  virtual ~DeviceLink() = default;  // what is under way ends first, early

  // What the memory node maps; there as long as this object.
  virtual DeviceWindow window() const = 0;

  // Maps the memory node's window, or where there is no descriptor prepares for posts.
  // kInvalidArgument: it is too small, or this device cannot reach it. kUnimplemented: both nodes'
  // processes take turns on one GPU, where who waits keeps the other from answering; not if
  // `in_turns` says that it may be so. REQUIRES: once, before anything else.
  virtual Status Join(const DeviceWindow& peer, bool in_turns) = 0;

  // This host posts messages when kernels have written them: it calls Carry whenever it polls, and
  // sleeps only briefly while any batch carries a message. Carry returns whether anything left;
  // errors as Endpoint::Post.
  virtual bool by_posts() const = 0;
  virtual Result<bool> Carry(Endpoint& memory_node) = 0;
  virtual bool carries(int batch) const = 0;

  // Sends the batch's next message; `about` is what AboutMessage says of it.
  virtual void Post(int batch, uint64_t about, std::span<const PackedParts> packed) = 0;

  // With `ahead`, what is asked for from here on runs when the reply to the last message is there:
  // not by_posts(). Without, the device goes on with other batches meanwhile, and the host has to
  // see with Fetch that the reply is there before it asks for what works with it. REQUIRES:
  // !carries(batch), so that no wait of the device stands behind what this host has yet to do.
  virtual void Await(int batch, bool ahead) = 0;

  // Elements of the reply's payload, from byte `offset` on, as ComputeDevice::Unpack. REQUIRES:
  // behind Await; without `ahead`, fetched.
  virtual void Unpack(int batch, size_t offset, DType dtype, const RowParts& parts,
                      float* value) = 0;

  // The host wants to know how the batch's reply turned out, and its first `payload_bytes`.
  // REQUIRES: behind Await.
  virtual void Fetch(int batch, size_t payload_bytes) = 0;
  virtual bool fetched(int batch) = 0;  // never blocks
  // Both REQUIRE: fetched. Not ok: what the memory node has answered to this or an earlier message
  // of its step, or kTimeout: no reply came.
  virtual Status outcome(int batch) = 0;
  virtual std::span<const std::byte> payload(int batch) = 0;  // until the batch's next Fetch

  // The memory node is gone, or is given up: waits end early, and it is told nothing more.
  virtual void GiveUp() = 0;

  virtual int64_t waited_us() const = 0;  // by the device so far, for replies
};

}  // namespace lamina
