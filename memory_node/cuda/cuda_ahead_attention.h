// AheadAttention on a GPU: kernels that wait for flags, each batch in a stream of its own, so that
// none waits behind another's.
#pragma once

#include <cstdint>
#include <functional>
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

// While kernels wait, this host must not wait for them: they may wait for a message that the
// compute node sends only after it has heard from this host. So what it writes and uploads goes
// through `uploads`, a stream that never waits, and nothing is freed meanwhile.
class CudaAheadAttention final : public AheadAttention {
 public:
  // Everything is borrowed. `write_collected` sees to it that all K and V that have come are
  // written or on their way, by `uploads`. Errors as cuda::SharedBuffer::Create and
  // cuda::DeviceBuffer::Create.
  static Result<std::unique_ptr<AheadAttention>> Create(const AttentionShape& shape,
                                                        const WireShape& wire, cuda::KvCache& cache,
                                                        cuda::StagedStream& uploads,
                                                        std::function<void()> write_collected);
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
  // A batch's.
  struct Lane {
    std::unique_ptr<cuda::Stream> stream;
    std::unique_ptr<cuda::Waits> waits;
    std::unique_ptr<cuda::Event> uploaded;     // by `uploads`, for the step that is asked for
    std::vector<cuda::UploadedTables> tables;  // by kind of layer
    cuda::DeviceBuffer stored;                 // [rows that store] TokenSlot
    cuda::DeviceBuffer scratch;                // of attention
    uint64_t number = 0;                       // of the last message that was asked about

    // The step, and its first layer that was not asked for.
    StepId step{};
    size_t rows = 0, rows_stored = 0;
    std::vector<int> kind_of_layer;
    int next_layer = 0;
  };

  CudaAheadAttention(const AttentionShape& shape, const WireShape& wire, cuda::KvCache& cache,
                     cuda::StagedStream& uploads, std::function<void()> write_collected)
      : shape_(shape),
        wire_(wire),
        cache_(cache),
        uploads_(uploads),
        write_collected_(std::move(write_collected)) {}
  Status CreateLane();
  void AskLayers(int batch);
  void Await(Lane& lane, int batch);
  void Raise(Lane& lane, int batch, size_t payload_bytes, const cuda::Flag& becomes);
  void RequireAsked(Lane& lane);
  std::byte* Message(int batch) const { return window_->data() + wire_.decode_offset(batch); }
  std::byte* Reply(int batch) const { return peer_window_->at(wire_.reply_offset(batch)); }

  const AttentionShape shape_;
  const WireShape wire_;
  cuda::KvCache& cache_;
  cuda::StagedStream& uploads_;
  const std::function<void()> write_collected_;
  cuda::DeviceId device_{};
  // For messages; behind them an outbox, for replies by posts.
  std::unique_ptr<cuda::SharedBuffer> window_;
  std::unique_ptr<cuda::PeerWindow> peer_window_;
  std::vector<Lane> lanes_;  // by batch
};

}  // namespace lamina
