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
  bool carries() const override { return peer_window_->carries(); }
  DeviceLane& lane(uint32_t batch) override { return *lanes_[batch]; }
  void GiveUp() override;
  int64_t waited_us() const override;

 private:
  // The state of one batch's messages. Thread: that of the link, which it borrows.
  class Lane final : public DeviceLane {
   public:
    Lane(CudaLink& link, int batch) : link_(link), batch_(batch) {}
    // REQUIRES: called once, before anything else.
    Status Allocate();

    void Post(uint64_t about, std::span<const PackedParts> packed) override;
    bool carries() const override { return link_.peer_window_->num_carried(batch_) > 0; }
    void Await(bool ahead) override;
    void Unpack(size_t offset, DType dtype, const RowParts& parts, float* value) override;
    void Fetch(size_t payload_bytes) override;
    bool fetched() const override { return is_fetched_->Reached(); }
    Status outcome() const override;
    std::span<const std::byte> payload() const override {
      return {fetched_.as<std::byte>() + sizeof(cuda::Flag), payload_bytes_};
    }

    // Waits for the stream that only this lane has.
    void Synchronize() {
      if (beside_stream_ != nullptr) (void)beside_stream_->Synchronize();
    }
    void GiveUp() {
      if (ahead_ != nullptr) ahead_->GiveUp();
      if (beside_ != nullptr) beside_->GiveUp();
    }
    uint64_t waited_ns() const { return ahead_->log().waited_ns + beside_->log().waited_ns; }

   private:
    std::byte* reply() const { return link_.window_->data() + link_.wire_.reply_offset(batch_); }

    CudaLink& link_;
    const int batch_;
    uint64_t number_ = 0;  // of the last message
    // Waits in the engine's stream (Await with `ahead`), and in beside_stream_ (without), where no
    // slices are queued behind a wait.
    std::unique_ptr<cuda::Waits> ahead_, beside_;
    std::unique_ptr<cuda::Stream> beside_stream_;
    cuda::Stream* awaits_in_ = nullptr;  // the stream of the last Await
    cuda::PinnedBuffer fetched_;         // the reply's flag, then its payload
    size_t payload_bytes_ = 0;           // how much of the payload was fetched
    std::unique_ptr<cuda::Event> is_fetched_;
  };

  CudaLink(const WireShape& wire, Clock::duration limit, CudaDevice& device)
      : wire_(wire), limit_(limit), device_(device) {}
  // From here on slices are queued behind the device's own waits.
  void RunAhead();
  cuda::Stream& stream() { return device_.engine().stream(); }

  const WireShape wire_;
  const Clock::duration limit_;
  CudaDevice& device_;
  cuda::DeviceId device_id_{};
  // The device window for replies; behind it an outbox, where messages that the host posts are
  // built.
  std::unique_ptr<cuda::SharedBuffer> window_;
  std::unique_ptr<cuda::PeerWindow> peer_window_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // by batch
  bool by_posts_ = false, runs_ahead_ = false;
};

}  // namespace lamina
