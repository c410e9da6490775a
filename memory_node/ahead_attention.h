// Attention that a memory node's device is asked for as soon as a step's order is here, before
// there are queries: the device waits for each layer's q, k and v in its device window by itself,
// attends, writes the outputs into the compute node's, and raises the flag there
// (wire/wire_format.h, "Device windows"). Neither node's host is on that way, but for posts to
// NICs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "transport/transport.h"

namespace lamina {

// The decode rows of an order.
struct AheadStep {
  StepId id;
  int batch = 0;
  // Where the new tokens' K and V go, of those rows that have one here.
  std::vector<TokenSlot> stored;
  // What each row attends to, new token included. Layers with windows of different sizes have
  // tables of their own.
  std::vector<std::vector<std::span<const TokenSlot>>> tables;  // [kinds of layers][rows]
  std::vector<int> kind_of_layer;
};

// With one compute node. Thread: one owner, the device's.
class AheadAttention {
 public:
  virtual ~AheadAttention() = default;  // what is under way ends first, early

  // What the compute node maps; there as long as this object.
  virtual DeviceWindow window() const = 0;

  // Maps the compute node's window, or where there is no descriptor prepares for posts.
  // kInvalidArgument: it is too small, or this device cannot reach it. REQUIRES: once, before
  // Attend.
  virtual Status Join(const DeviceWindow& peer) = 0;

  // By posts, this host posts replies when kernels have written them: it calls Carry whenever it
  // polls, and sleeps only briefly while carries(). Carry returns whether anything left; errors as
  // Endpoint::Post.
  virtual Result<bool> Carry(Endpoint& compute_node) = 0;
  virtual bool carries() const = 0;

  virtual int num_layers() const = 0;

  // The slots of the sequence's first `num_tokens` tokens, the last of which a step writes: it
  // counts as written in all layers. Errors as KvTables::Claim. REQUIRES: the others were written.
  virtual Result<std::span<const TokenSlot>> Claim(SequenceId sequence, int64_t num_tokens,
                                                   StepId step) = 0;

  // Asks for all layers of a step. Does not wait for the device. REQUIRES: the batch's step before
  // was answered.
  virtual void Attend(const AheadStep& step) = 0;

  // Likewise, but each layer is answered with an error. `step` needs no tables.
  virtual void Refuse(const AheadStep& step, size_t num_rows, const Status& why) = 0;

  // The compute node is gone: what is under way ends early, and nobody is answered any more.
  virtual void GiveUp() = 0;

  // GiveUp was called, or a message did not come in time, or was about something else than ordered:
  // the compute node is of no more use.
  virtual bool gave_up() const = 0;

  virtual int64_t attention_us() const = 0;  // so far, as the device has measured it
};

}  // namespace lamina
