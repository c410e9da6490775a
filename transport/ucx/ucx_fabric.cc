#include "transport/ucx/ucx_fabric.h"

#include <boost/system/system_error.hpp>
#include <cstring>

#include "transport/connecting.h"
#include "transport/rdma_host.h"
#include "transport/rendezvous.h"
#include "transport/ucx/ucx_endpoint.h"

namespace lamina {
namespace {

class UcxBuffer final : public Buffer {
 public:
  explicit UcxBuffer(std::unique_ptr<UcxMemory> memory) : memory_(std::move(memory)) {}
  std::span<std::byte> bytes() override { return memory_->bytes(); }

 private:
  const std::unique_ptr<UcxMemory> memory_;
};

class UcxEnd final : public RendezvousEnd {
 public:
  UcxEnd(std::unique_ptr<UcxEndpoint> endpoint, std::string offer)
      : endpoint_(std::move(endpoint)), offer_(std::move(offer)) {}

  std::string Offer() const override {
    // The accepting end knows the number only now that it has joined.
    const uint64_t number = endpoint_->number();
    std::string offer = offer_;
    std::memcpy(offer.data() + offsetof(UcxOffer, number), &number, sizeof(number));
    return offer;
  }
  Status Join(const RendezvousPeer& peer) override { return endpoint_->Join(peer); }
  Status Settle() override { return endpoint_->Settle(); }

  Result<std::unique_ptr<Endpoint>> Finish(RendezvousLink link) override {
    endpoint_->Start(std::move(link));
    return std::unique_ptr<Endpoint>(std::move(endpoint_));
  }

 private:
  std::unique_ptr<UcxEndpoint> endpoint_;
  const std::string offer_;
};

class UcxFabric final : public Fabric, private RendezvousHost {
 public:
  explicit UcxFabric(std::unique_ptr<UcxContext> context) : context_(std::move(context)) {}

  std::string_view name() const override { return "ucx"; }
  const Limits& limits() const override { return kUcxLimits; }

  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    LAMINA_ASSIGN_OR_RETURN(auto memory, UcxMemory::Create(*context_, bytes));
    return std::unique_ptr<Buffer>(std::make_unique<UcxBuffer>(std::move(memory)));
  }

  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    return RendezvousListener::Create(*this, address);
  }

  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<Connecting> connecting,
                            StartRendezvous(*this, address, options, deadline));
    return WithOutcome(std::move(connecting), [](Result<std::unique_ptr<Endpoint>> endpoint) {
      // An accepting end that nothing safe joins with this one drops the connection without saying
      // why, so the likely reason is added here.
      if (endpoint.status().code() != StatusCode::kPeerLost || !UcxTrustedDevices().empty())
        return endpoint;
      endpoint = PeerLost(endpoint.status().message() + " (" + UcxLocalOnly() + ")");
      return endpoint;
    });
  }

  bool Arm() override {
    for (const auto& [id, endpoint] : context_->endpoints) endpoint->AnnounceSleep();
    if (!context_->Arm()) return false;
    // Looked at after arming UCX, which may have received something meanwhile.
    for (const auto& [id, endpoint] : context_->endpoints) {
      if (endpoint->HasWork()) return false;
    }
    context_->may_have_slept = true;
    return true;
  }

  int event_fd() const override { return context_->poll_set.fd(); }

 private:
  PollSet& poll_set() override { return context_->poll_set; }
  boost::asio::io_context& io() override { return context_->io; }
  // Every address will do: UcxContext has chosen what UCX may use.
  Status CheckAddress(const boost::asio::ip::address&) override { return OkStatus(); }

  Result<std::unique_ptr<RendezvousEnd>> NewEnd(const boost::asio::ip::address&,
                                                const EndpointOptions& options) override {
    LAMINA_ASSIGN_OR_RETURN(auto region,
                            UcxMemory::Create(*context_, kUcxControlBytes + options.window_bytes));
    LAMINA_ASSIGN_OR_RETURN(const uint64_t id, context_->NewId());
    auto endpoint = std::make_unique<UcxEndpoint>(*context_, id, std::move(region));
    LAMINA_ASSIGN_OR_RETURN(std::string offer, endpoint->Offer());
    return std::unique_ptr<RendezvousEnd>(
        std::make_unique<UcxEnd>(std::move(endpoint), std::move(offer)));
  }

  const std::unique_ptr<UcxContext> context_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> OpenUcxFabric() {
  try {
    LAMINA_ASSIGN_OR_RETURN(auto context, UcxContext::Create());
    return std::unique_ptr<Fabric>(std::make_unique<UcxFabric>(std::move(context)));
  } catch (const boost::system::system_error& error) {  // Asio's io_context opens descriptors
    return OutOfSpace(std::string("opening the ucx fabric: ") + error.what());
  }
}

}  // namespace lamina
