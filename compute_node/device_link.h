// The interface of a compute node's link to a memory node by which messages go from device to
// device, through device windows (wire/wire_format.h): kernels write q, k and v, and the device
// itself waits for the outputs.
//
// Calls only queue work on the device, in the order of the slices. So a step's layers can be queued
// one after the other before the first of them has run, unless this host has to post the messages.
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

// The messages of one batch over a link. Per layer: Post, Await, Unpack; Fetch and, once fetched,
// outcome and payload where the host needs to know how the reply turned out. Thread: one owner,
// that of the device.
class DeviceLane {
 public:
  virtual ~DeviceLane() = default;

  // Queues the batch's next message. `about` is its AboutMessage.
  virtual void Post(uint64_t about, std::span<const PackedParts> packed) = 0;
  // Whether there is a message that DeviceLink::Carry has still to post.
  virtual bool carries() const = 0;

  // Makes the device wait for the reply to the last message. With `ahead`, all work that is queued
  // after this call runs behind the reply. Without, the device goes on with other batches, and the
  // host must see by Fetch that the reply has come before it queues work that uses it. REQUIRES:
  // !carries(), so that the device never waits for something that this host has yet to do; with
  // `ahead`, !by_posts().
  virtual void Await(bool ahead) = 0;

  // Copies elements of the reply's payload, from byte `offset` on, into a value; see
  // ComputeDevice::Unpack. REQUIRES: Await was called; without `ahead`, the reply is fetched.
  virtual void Unpack(size_t offset, DType dtype, const RowParts& parts, float* value) = 0;

  // Asks for the outcome of the reply and its first `payload_bytes`. REQUIRES: Await was called.
  virtual void Fetch(size_t payload_bytes) = 0;
  virtual bool fetched() const = 0;  // never blocks
  // How the reply turned out: the error that the memory node has answered to this or an earlier
  // message of the step, or kTimeout if no reply came. The payload is borrowed until the next
  // Fetch. REQUIRES: fetched().
  virtual Status outcome() const = 0;
  virtual std::span<const std::byte> payload() const = 0;
};

// Thread: one owner, that of the device.
class DeviceLink {
 public:
  // Ends what is under way early, and waits for it.
  virtual ~DeviceLink() = default;

  // The window that the memory node maps or posts to. Valid as long as this object.
  virtual DeviceWindow window() const = 0;

  // Maps the memory node's window; prepares for posts if it has no descriptor to map.
  // kInvalidArgument if the window is too small or this device cannot reach it. kUnimplemented if
  // both nodes' processes take turns on one GPU, where a process that waits on the device keeps the
  // other from answering; `in_turns` accepts that. REQUIRES: called once, before anything else.
  virtual Status Join(const DeviceWindow& peer, bool in_turns) = 0;

  // The messages of a batch, which is below WireShape::num_batches. Valid as long as this object.
  virtual DeviceLane& lane(uint32_t batch) = 0;

  // With by_posts(), messages that kernels have written are posted by this host: it must call Carry
  // whenever it polls, and sleep only briefly while carries(). Carry returns whether it posted
  // anything, or the error of Endpoint::Post.
  virtual bool by_posts() const = 0;
  virtual Result<bool> Carry(Endpoint& memory_node) = 0;
  // Whether any lane carries.
  virtual bool carries() const = 0;

  // The memory node is lost or no longer needed: ends waits early and sends nothing more to it.
  virtual void GiveUp() = 0;

  // How long the device has waited for replies so far.
  virtual int64_t waited_us() const = 0;
};

}  // namespace lamina
