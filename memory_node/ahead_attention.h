// Attention that a memory node's device is asked for as soon as a step's order is here, before
// there are queries. For each layer the device itself waits until q, k and v are in its device
// window, attends, writes the outputs into the compute node's device window and raises the flag
// there (wire/wire_format.h, "Device windows"). The hosts of the two nodes take no part in this,
// except that they post messages where a NIC joins the devices.
//
// Use: window() is offered to compute nodes, and Join is called with the window of the one that
// takes the offer. Then, for each step: Claim for its rows, and Attend or Refuse. Carry is called
// in the poll loop.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "transport/transport.h"

namespace lamina {

// The decode rows of one order, as the device needs them.
struct AheadStep {
  StepId id;
  int batch = 0;
  // The slots for K and V of the new tokens, for those rows whose token is stored on this node.
  std::vector<TokenSlot> stored;
  // The slots that each row attends to, that of its new token included. There is one table for
  // each size of attention window that the model's layers have.
  std::vector<std::vector<std::span<const TokenSlot>>> tables;  // [window sizes][rows]
  std::vector<int> kind_of_layer;                               // [layers], index into `tables`
};

// Serves one compute node. Owns the device window. Thread: one owner, who is also the owner of the
// KV device that made it.
class AheadAttention {
 public:
  // Ends what is under way early and waits for the device.
  virtual ~AheadAttention() = default;

  // The window that the compute node's device writes messages into. Valid as long as this object.
  virtual DeviceWindow window() const = 0;

  // Maps the compute node's device window or, if that has no descriptor, prepares to send replies
  // by posts of this host. kInvalidArgument if the window is too small or this device cannot reach
  // it; kUnimplemented if the driver is too old to map it; kOutOfSpace if there is no pinned memory
  // for posts. REQUIRES: called once, before Attend.
  virtual Status Join(const DeviceWindow& peer) = 0;

  // Posts the replies that kernels have written since the last call, and returns whether it posted
  // any. Does nothing if the compute node's window is mapped. Replies that do not fit into the
  // queue are left to the next call; every other error of Endpoint::Post is returned.
  virtual Result<bool> Carry(Endpoint& compute_node) = 0;
  // Whether replies are still to be posted. The device wakes nobody, so the caller must call Carry
  // often while this is true.
  virtual bool carries() const = 0;

  virtual int num_layers() const = 0;

  // Counts the last of the sequence's first `num_tokens` tokens as written in all layers, because
  // the step will write it, and returns the slots of these tokens. kNotFound if the sequence is
  // unknown or its table was started after `step`. REQUIRES: the sequence has num_tokens tokens
  // here, and all but the last were written.
  virtual Result<std::span<const TokenSlot>> Claim(SequenceId sequence, int64_t num_tokens,
                                                   StepId step) = 0;

  // Asks the device for all layers of a step. The step is borrowed during the call only. Does not
  // wait for the device. REQUIRES: the batch's previous step was answered.
  virtual void Attend(const AheadStep& step) = 0;

  // Asks the device to answer each layer's message with the error `why` instead. Of `step` only id,
  // batch and the size of `stored` are used. REQUIRES: as for Attend.
  virtual void Refuse(const AheadStep& step, size_t num_rows, const Status& why) = 0;

  // To be called when the compute node is gone: what is under way ends early, and nobody is
  // answered any more.
  virtual void GiveUp() = 0;

  // Whether GiveUp was called, a message did not come in time, or a message was not the one that
  // the order announced. The compute node cannot be served any more then.
  virtual bool gave_up() const = 0;

  // How long the device has attended so far, as it has measured itself.
  virtual int64_t attention_us() const = 0;
};

}  // namespace lamina
