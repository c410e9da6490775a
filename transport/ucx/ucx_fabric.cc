#include "transport/ucx/ucx_fabric.h"

#include <boost/system/system_error.hpp>
#include <cstring>

#include "transport/connecting.h"
#include "transport/crypto.h"
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

  std::string Offer() const override { return offer_; }
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

// Opens a worker and closes it, so that what keeps UCX from making one is said where the fabric is
// opened, and not with the first connection.
Status TryWorker(UcxContext& context) {
  class Nobody final : public UcxReceiver {
    void OnNotice(const UcxNotice& /*notice*/) override {}
    void OnError(ucs_status_t /*status*/) override {}
  } nobody;
  return UcxWorker::Create(context, nobody).status();
}

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
    for (UcxEndpoint* endpoint : context_->endpoints) {
      if (!endpoint->Arm()) return false;
    }
    // Looked at after arming UCX, which may have received something meanwhile.
    for (UcxEndpoint* endpoint : context_->endpoints) {
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
    LAMINA_ASSIGN_OR_RETURN(const std::string random, RandomBytes(sizeof(uint64_t)));
    uint64_t id = 0;
    std::memcpy(&id, random.data(), sizeof(id));
    LAMINA_ASSIGN_OR_RETURN(auto endpoint, UcxEndpoint::Create(*context_, id, std::move(region)));
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
    LAMINA_RETURN_IF_ERROR(TryWorker(*context));
    return std::unique_ptr<Fabric>(std::make_unique<UcxFabric>(std::move(context)));
  } catch (const boost::system::system_error& error) {  // Asio's io_context opens descriptors
    return OutOfSpace(std::string("opening the ucx fabric: ") + error.what());
  }
}

}  // namespace lamina
