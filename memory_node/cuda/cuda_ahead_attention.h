// AheadAttention on a GPU. Kernels that wait for flags (kernels/cuda/flags.h) take the place of a
// host that polls. Each batch has a stream of its own, so that no batch waits behind another's
// messages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/attention_shape.h"
#include "kernels/cuda/flags.h"
#include "kernels/cuda/host/kv_cache.h"
#include "kernels/cuda/host/peer_window.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/host/uploaded_tables.h"
#include "kernels/cuda/shared_buffer.h"
#include "memory_node/ahead_attention.h"
#include "wire/wire_format.h"

namespace lamina {

// While kernels wait, this host must not wait for them: they may be waiting for a message that the
// compute node sends only after it has heard from this host. So everything that this host uploads
// goes through `uploads`, a stream in which no kernel waits, and no device memory is freed
// meanwhile. Thread: one owner, that of the KV cache.
class CudaAheadAttention final : public AheadAttention {
 public:
  // Borrows cache and uploads. kUnimplemented, saying why, if the device, driver or system cannot
  // share memory or run kernels that wait; kOutOfSpace if there is no device or pinned memory left
  // for windows and scratch; kInternal if the device cannot be used.
  static Result<std::unique_ptr<AheadAttention>> Create(const AttentionShape& shape,
                                                        const WireShape& wire, cuda::KvCache& cache,
                                                        cuda::StagedStream& uploads);
  ~CudaAheadAttention() override;

  DeviceWindow window() const override;
  Status Join(const DeviceWindow& peer) override;
  Result<bool> Carry(Endpoint& compute_node) override;
  bool carries() const override { return peer_window_ != nullptr && peer_window_->carries(); }
  int num_layers() const override { return cache_.shape().num_layers; }
  Result<std::span<const TokenSlot>> Claim(SequenceId sequence, int64_t num_tokens,
                                           StepId step) override;
  void Attend(const AheadStep& step) override;
  void Refuse(const AheadStep& step, size_t num_rows, const Status& why) override;
  void GiveUp() override;
  bool gave_up() const override;
  int64_t attention_us() const override;

 private:
  // What belongs to one batch.
  struct Lane {
    int batch = 0;
    std::unique_ptr<cuda::Stream> stream;
    std::unique_ptr<cuda::Waits> waits;
    // `uploads` has uploaded what the step needs.
    std::unique_ptr<cuda::Event> uploaded;
    std::vector<cuda::UploadedTables> tables;  // [window sizes], as in AheadStep
    cuda::DeviceBuffer stored;                 // [rows that store] TokenSlot
    cuda::DeviceBuffer scratch;                // of attention
    uint64_t number = 0;                       // of the last message that a wait was queued for

    // The step that the device was asked for last.
    StepId step{};
    size_t rows = 0, rows_stored = 0;
    std::vector<int> kind_of_layer;  // empty if the step was refused
    int next_layer = 0;              // the first layer that was not asked for yet
  };

  CudaAheadAttention(const AttentionShape& shape, const WireShape& wire, cuda::KvCache& cache,
                     cuda::StagedStream& uploads)
      : shape_(shape), wire_(wire), cache_(cache), uploads_(uploads) {}
  Status CreateLane(int batch);
  // Queues the kernels of the step's next layers, as many as may be queued.
  void AskLayers(Lane& lane);
  // Queues the wait for the lane's next message.
  void Await(Lane& lane);
  // Queues the flag of the reply to the message that was awaited last.
  void Raise(Lane& lane, size_t payload_bytes, const cuda::Flag& becomes);
  // Ends the process if a launch was refused.
  void RequireAsked(Lane& lane);
  // Where the lane's message and its reply are: each begins with a cuda::Flag.
  std::byte* Message(const Lane& lane) const {
    return window_->data() + wire_.decode_offset(lane.batch);
  }
  std::byte* Reply(const Lane& lane) const {
    return peer_window_->at(wire_.reply_offset(lane.batch));
  }

  const AttentionShape shape_;
  const WireShape wire_;
  cuda::KvCache& cache_;
  cuda::StagedStream& uploads_;
  cuda::DeviceId device_{};
  // The device window for messages; behind it an outbox, where replies that the host posts are
  // built.
  std::unique_ptr<cuda::SharedBuffer> window_;
  std::unique_ptr<cuda::PeerWindow> peer_window_;  // null until Join
  std::vector<Lane> lanes_;                        // [batches]
};

}  // namespace lamina
