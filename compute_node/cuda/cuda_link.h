// The DeviceLink of a GPU: flags in the two device windows (kernels/cuda/flags.h) say that a
// message or its reply is there.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "compute_node/cuda/cuda_device.h"
#include "compute_node/device_link.h"
#include "kernels/cuda/flags.h"
#include "kernels/cuda/host/peer_window.h"
#include "kernels/cuda/shared_buffer.h"
#include "wire/wire_format.h"

namespace lamina {

// Thread: one owner, that of the device.
class CudaLink final : public DeviceLink {
 public:
  // Borrows the device. `limit` is how long the device waits for a reply. Errors are those of
  // allocating the window and the buffers, and of the stream, which is waited for.
  static Result<std::unique_ptr<DeviceLink>> Create(const WireShape& wire, Clock::duration limit,
                                                    CudaDevice& device);
  ~CudaLink() override;

  DeviceWindow window() const override;
  Status Join(const DeviceWindow& peer, bool in_turns) override;
  bool by_posts() const override { return by_posts_; }
  Result<bool> Carry(Endpoint& memory_node) override;
  bool carries(int batch) const override { return peer_window_->num_carried(batch) > 0; }
  void Post(int batch, uint64_t about, std::span<const PackedParts> packed) override;
  void Await(int batch, bool ahead) override;
  void Unpack(int batch, size_t offset, DType dtype, const RowParts& parts, float* value) override;
  void Fetch(int batch, size_t payload_bytes) override;
  bool fetched(int batch) override;
  Status outcome(int batch) override;
  std::span<const std::byte> payload(int batch) override;
  void GiveUp() override;
  int64_t waited_us() const override;

 private:
  struct Batch {
    bool gave_up() const { return ahead->log().gave_up || beside->log().gave_up; }

    uint64_t number = 0;  // of the last message
    // Waits in the engine's stream (Await with `ahead`), and in beside_stream (without), where no
    // slices are queued behind a wait.
    std::unique_ptr<cuda::Waits> ahead, beside;
    std::unique_ptr<cuda::Stream> beside_stream;
    cuda::Stream* awaits_in = nullptr;  // the stream of the last Await
    cuda::PinnedBuffer fetched;         // the reply's flag, then its payload
    size_t payload_bytes = 0;           // how much of the payload was fetched
    std::unique_ptr<cuda::Event> is_fetched;
  };

  CudaLink(const WireShape& wire, Clock::duration limit, CudaDevice& device)
      : wire_(wire), limit_(limit), device_(device) {}
  std::byte* Reply(int batch) const { return window_->data() + wire_.reply_offset(batch); }
  cuda::Stream& stream() { return device_.engine().stream(); }

  const WireShape wire_;
  const Clock::duration limit_;
  CudaDevice& device_;
  cuda::DeviceId device_id_{};
  // The device window for replies; behind it an outbox, where messages that the host posts are
  // built.
  std::unique_ptr<cuda::SharedBuffer> window_;
  std::unique_ptr<cuda::PeerWindow> peer_window_;
  std::vector<Batch> batches_;
  bool by_posts_ = false, runs_ahead_ = false;
};

}  // namespace lamina
