#include "transport/verbs/verbs_fabric.h"

#include <sys/epoll.h>

#include <algorithm>
#include <boost/system/system_error.hpp>

#include "transport/rendezvous.h"
#include "transport/verbs/verbs_endpoint.h"

namespace lamina {
namespace {

class VerbsBuffer final : public Buffer {
 public:
  explicit VerbsBuffer(std::unique_ptr<VerbsRegions::Memory> memory) : memory_(std::move(memory)) {}
  std::span<std::byte> bytes() override { return memory_->bytes(); }

 private:
  const std::unique_ptr<VerbsRegions::Memory> memory_;
};

class VerbsEnd final : public RendezvousEnd {
 public:
  VerbsEnd(VerbsContext& context, std::unique_ptr<VerbsRegions::Memory> window,
           std::unique_ptr<VerbsDeviceWindow> device_window, std::unique_ptr<VerbsQueuePair> pair)
      : context_(context),
        window_(std::move(window)),
        device_window_(std::move(device_window)),
        pair_(std::move(pair)) {}

  std::string Offer() const override {
    VerbsOffer offer = pair_->Offer();
    offer.window_address = reinterpret_cast<uintptr_t>(window_->bytes().data());
    offer.window_key = window_->remote_key(pair_->device());
    if (device_window_ != nullptr) {
      offer.device_window_key = device_window_->remote_key();
      offer.device_window_address = device_window_->address();
      offer.device_window_bytes = device_window_->bytes();
      offer.device = device_window_->device();
    }
    return std::string(reinterpret_cast<const char*>(&offer), sizeof(offer));
  }

  Status Join(const RendezvousPeer& peer) override {
    LAMINA_ASSIGN_OR_RETURN(peer_offer_, ParseVerbsOffer(peer.offer, pair_->port()));
    return pair_->Connect(peer_offer_);
  }

  Result<std::unique_ptr<Endpoint>> Finish(RendezvousLink link) override {
    return std::unique_ptr<Endpoint>(
        std::make_unique<VerbsEndpoint>(context_, std::move(window_), std::move(device_window_),
                                        std::move(pair_), peer_offer_, std::move(link)));
  }

 private:
  VerbsContext& context_;
  std::unique_ptr<VerbsRegions::Memory> window_;
  std::unique_ptr<VerbsDeviceWindow> device_window_;  // null: there is none
  std::unique_ptr<VerbsQueuePair> pair_;  // destroyed before the windows, which its NIC writes into
  VerbsOffer peer_offer_;
};

Limits LimitsOf(const VerbsDevices& devices, const VerbsDepths& depths) {
  Limits limits{.max_ops = std::min<size_t>(kVerbsMaxOps, depths.sends / 4),
                .max_window_bytes = uint64_t{1} << 40,
                .registered_sources = true,
                .one_sided = true};
  limits.max_outstanding = std::min<size_t>(
      {kVerbsMaxPosts, depths.credits, (depths.sends - kCreditSends) / limits.max_ops});
  for (const auto& device : devices.all())
    limits.max_window_bytes = std::min(limits.max_window_bytes, device->attributes().max_mr_size);
  return limits;
}

class VerbsFabric final : public Fabric, private RendezvousHost {
 public:
  static Result<std::unique_ptr<Fabric>> Create() {
    LAMINA_ASSIGN_OR_RETURN(VerbsDevices devices, VerbsDevices::OpenAll());
    LAMINA_ASSIGN_OR_RETURN(const VerbsDepths depths, ChooseDepths(devices));
    std::unique_ptr<VerbsFabric> fabric(new VerbsFabric(std::move(devices), depths));
    // A single device is used in any case, so buffers are registered with it when they are made.
    // With several devices NewEnd registers them with those that connections use.
    const auto& all = fabric->context_.devices.all();
    if (all.size() == 1) LAMINA_RETURN_IF_ERROR(fabric->context_.regions.Use(*all.front()));
    return std::unique_ptr<Fabric>(std::move(fabric));
  }

  std::string_view name() const override { return "verbs"; }
  const Limits& limits() const override { return context_.limits; }

  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    LAMINA_ASSIGN_OR_RETURN(auto memory, context_.regions.NewBuffer(bytes));
    return std::unique_ptr<Buffer>(std::make_unique<VerbsBuffer>(std::move(memory)));
  }

  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    return RendezvousListener::Create(*this, address);
  }

  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    return StartRendezvous(*this, address, options, deadline);
  }

  bool Arm() override {
    // Old events first: the requests that PrepareSleep makes bring new ones.
    for (const auto& device : context_.devices.all()) VerbsQueuePair::TakeEvents(*device);
    bool may_sleep = true;
    for (VerbsEndpoint* endpoint : context_.endpoints)
      may_sleep = endpoint->PrepareSleep() && may_sleep;
    context_.may_have_slept = context_.may_have_slept || may_sleep;
    return may_sleep;
  }

  int event_fd() const override { return context_.poll_set.fd(); }

 private:
  VerbsFabric(VerbsDevices devices, const VerbsDepths& depths) : context_(std::move(devices)) {
    context_.depths = depths;
    context_.limits = LimitsOf(context_.devices, depths);
    for (const auto& device : context_.devices.all())
      context_.poll_set.Add(device->channel()->fd, EPOLLIN, nullptr);
  }

  PollSet& poll_set() override { return context_.poll_set; }
  boost::asio::io_context& io() override { return context_.io; }

  Status CheckAddress(const boost::asio::ip::address& local) override {
    return context_.devices.Find(local).status();
  }

  Result<std::unique_ptr<RendezvousEnd>> NewEnd(const boost::asio::ip::address& local,
                                                const EndpointOptions& options) override {
    LAMINA_ASSIGN_OR_RETURN(const VerbsDevices::Place place, context_.devices.Find(local));
    LAMINA_RETURN_IF_ERROR(context_.regions.Use(place.device));
    LAMINA_ASSIGN_OR_RETURN(auto window,
                            context_.regions.NewWindow(place.device, options.window_bytes));
    auto device_window = VerbsDeviceWindow::Register(place.device, options.device_window);
    LAMINA_ASSIGN_OR_RETURN(auto pair, VerbsQueuePair::Create(place, context_.depths));
    return std::unique_ptr<RendezvousEnd>(std::make_unique<VerbsEnd>(
        context_, std::move(window), std::move(device_window), std::move(pair)));
  }

  VerbsContext context_;
};

}  // namespace

Result<std::unique_ptr<Fabric>> OpenVerbsFabric() {
  // Before Linux 5.12 a fork makes registered pages copy-on-write, and this process may get copies
  // that the device does not write into (ibv_fork_init(3)).
  if (const int error = ibv_fork_init(); error != 0)
    return InternalError("ibv_fork_init failed with " + std::to_string(error));
  try {
    return VerbsFabric::Create();
  } catch (const boost::system::system_error& error) {  // Asio's io_context opens descriptors
    return OutOfSpace(std::string("opening the verbs fabric: ") + error.what());
  }
}

}  // namespace lamina
