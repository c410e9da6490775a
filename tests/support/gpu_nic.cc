#if LAMINA_HAS_CUDA
#include "tests/support/gpu_nic.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device.h"
#include "transport/checks.h"
#include "transport/connecting.h"

namespace lamina::testing {
namespace {

// A window while its endpoint is there: nobody writes into it afterwards.
struct Window {
  std::mutex mutex;
  DeviceWindow memory;  // guarded by mutex; data is null once its endpoint is gone
};

// All of this process, by the number that an end says before its hello. Guarded by the mutex.
struct Directory {
  std::mutex mutex;
  uint64_t last = 0;
  std::map<uint64_t, std::weak_ptr<Window>> windows;
};

Directory& TheDirectory() {
  static Directory directory;
  return directory;
}

constexpr size_t kNumberDigits = 20;

// Enters a window, and says which one before the hello.
std::shared_ptr<Window> Enter(EndpointOptions& options) {
  auto window = std::make_shared<Window>();
  window->memory = options.device_window;
  if (window->memory.data == nullptr) window->memory.bytes = 0;
  Directory& directory = TheDirectory();
  const std::lock_guard lock(directory.mutex);
  std::erase_if(directory.windows, [](const auto& entry) { return entry.second.expired(); });
  directory.windows[++directory.last] = window;
  const std::string number = std::to_string(directory.last);
  options.hello = std::string(kNumberDigits - number.size(), '0') + number + options.hello;
  return window;
}

class NicEndpoint final : public Endpoint {
 public:
  NicEndpoint(std::unique_ptr<Endpoint> inner, std::shared_ptr<Window> own)
      : inner_(std::move(inner)), own_(std::move(own)) {
    const std::string& said = inner_->peer_hello();
    peer_hello_ = said.substr(kNumberDigits);
    {
      Directory& directory = TheDirectory();
      const std::lock_guard lock(directory.mutex);
      theirs_ = directory.windows.at(std::stoull(said.substr(0, kNumberDigits))).lock();
    }
    if (theirs_ == nullptr) theirs_ = std::make_shared<Window>();  // gone already
    const std::lock_guard lock(theirs_->mutex);
    their_memory_ = theirs_->memory;
  }
  ~NicEndpoint() override {
    const std::lock_guard lock(own_->mutex);
    own_->memory.data = nullptr;
  }

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override {
    const auto to_device = [](const WriteOp& op) { return op.to_device; };
    if (std::ranges::none_of(ops, to_device)) return inner_->Post(ops, notify, tag);
    const Limits limits{.max_ops = 64};
    LAMINA_RETURN_IF_ERROR(CheckOps(ops, limits, 0, posts_to_device() ? their_memory_.bytes : 0));
    LAMINA_RETURN_IF_ERROR(inner_->Post({}, notify, tag));
    const std::lock_guard lock(theirs_->mutex);
    if (theirs_->memory.data == nullptr) return OkStatus();  // the peer is gone: lost on the way
    for (const WriteOp& op : ops) LAMINA_RETURN_IF_ERROR(Copy(op));
    return OkStatus();
  }

  size_t Poll(std::span<Event> out) override { return inner_->Poll(out); }
  std::span<std::byte> window() override { return inner_->window(); }
  uint64_t peer_window_bytes() const override { return inner_->peer_window_bytes(); }
  DeviceWindow peer_device_window() const override {
    return {.bytes = their_memory_.bytes, .device = their_memory_.device};
  }
  bool posts_to_device() const override {
    return own_->memory.bytes > 0 && their_memory_.bytes > 0;
  }
  const std::string& peer_hello() const override { return peer_hello_; }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  std::string last_error() const override { return inner_->last_error(); }

 private:
  Status Copy(const WriteOp& op) {
    const DeviceWindow& own = own_->memory;
    if (op.source.data() < own.data || op.source.data() + op.source.size() > own.data + own.bytes)
      return InvalidArgument("the source lies outside this end's device window");
    if (stream_ == nullptr) {
      LAMINA_RETURN_IF_ERROR(cuda::UseDevice(0));
      LAMINA_ASSIGN_OR_RETURN(stream_, cuda::Stream::Create());
    }
    cuda::CopyOnDevice(theirs_->memory.data + op.peer_offset, op.source.data(), op.source.size(),
                       *stream_);
    return stream_->Synchronize();
  }

  const std::unique_ptr<Endpoint> inner_;
  const std::shared_ptr<Window> own_;
  std::shared_ptr<Window> theirs_;
  DeviceWindow their_memory_;
  std::string peer_hello_;
  std::unique_ptr<cuda::Stream> stream_;
};

class NicListener final : public Listener {
 public:
  explicit NicListener(std::unique_ptr<Listener> inner) : inner_(std::move(inner)) {}

  Result<std::unique_ptr<Endpoint>> Accept(const EndpointOptions& options) override {
    EndpointOptions entered = options;
    if (options.may_join) {
      entered.may_join = [&](const std::string& hello) {
        return options.may_join(hello.substr(kNumberDigits));
      };
    }
    std::shared_ptr<Window> window = Enter(entered);
    LAMINA_ASSIGN_OR_RETURN(auto endpoint, inner_->Accept(entered));
    return std::unique_ptr<Endpoint>(
        std::make_unique<NicEndpoint>(std::move(endpoint), std::move(window)));
  }

  const std::string& address() const override { return inner_->address(); }

 private:
  const std::unique_ptr<Listener> inner_;
};

class NicFabric final : public Fabric {
 public:
  std::string_view name() const override { return inner_->name(); }
  const Limits& limits() const override { return inner_->limits(); }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }

  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override {
    LAMINA_ASSIGN_OR_RETURN(auto listener, inner_->Listen(address));
    return std::unique_ptr<Listener>(std::make_unique<NicListener>(std::move(listener)));
  }

  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override {
    EndpointOptions entered = options;
    std::shared_ptr<Window> window = Enter(entered);
    LAMINA_ASSIGN_OR_RETURN(auto connecting, inner_->StartConnect(address, entered, deadline));
    return WithOutcome(
        std::move(connecting),
        [window](Result<std::unique_ptr<Endpoint>> endpoint) -> Result<std::unique_ptr<Endpoint>> {
          if (!endpoint.ok()) return endpoint;
          return std::unique_ptr<Endpoint>(
              std::make_unique<NicEndpoint>(*std::move(endpoint), window));
        });
  }

  bool Arm() override { return inner_->Arm(); }
  int event_fd() const override { return inner_->event_fd(); }

 private:
  const std::unique_ptr<Fabric> inner_ = OpenFabric("loopback").value();
};

}  // namespace

std::unique_ptr<Fabric> OpenGpuNicFabric() { return std::make_unique<NicFabric>(); }

}  // namespace lamina::testing
#endif
