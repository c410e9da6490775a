// What a ucx fabric's endpoints, listeners and buffers share: UCX's context, its one worker, memory
// that it has registered.
#pragma once

#include <ucp/api/ucp.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "transport/poll_set.h"
#include "transport/ucx/ucx_wire.h"

namespace lamina {

class UcxEndpoint;

// "ucp_put_nbx: Endpoint timeout"
std::string UcxText(std::string_view call, ucs_status_t status);

// Thread: owner. Outlives all that is made with it.
class UcxContext {
 public:
  // kInternal with UCX's reason; kNotFound: UcxTrustedDevices names some where there are none;
  // kOutOfSpace: too little memory, or too little of it may be locked. Which transports UCX may use
  // is decided in here; the rest of its configuration comes from the environment.
  static Result<std::unique_ptr<UcxContext>> Create();
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }
  const std::string& worker_address() const { return worker_address_; }

  // Which machine this is, as UcxOffer says it.
  const UcxHost& host() const { return host_; }

  // Lets UCX receive and go on with what is under way; callbacks run in here. False if there was
  // nothing to do.
  bool Progress() { return ucp_worker_progress(worker_) != 0; }

  // True if poll_set wakes when UCX has something; false if it has something now.
  bool Arm();

  // Finds out which peers have gone.
  void CheckSockets();

  // For an end. Nobody can guess it whom that end has not told.
  Result<uint64_t> NewId() const;

  // What UCX uses to reach the peer of `endpoint`, in its own words: "lane[0]: 1:tcp/eth0.0 ...;
  // lane[1]: ...".
  static std::string Lanes(ucp_ep_h endpoint);

  // The first time: at level info.
  void LogOnce(std::string_view how, const std::string& lanes);

  PollSet poll_set;
  // Never run: the sockets are non-blocking and polled.
  boost::asio::io_context io;
  std::unordered_map<uint64_t, UcxEndpoint*> endpoints;  // by id; only read in the steady state
  // The reason to wake may have been a socket.
  bool may_have_slept = false;

 private:
  UcxContext() = default;
  Status Open();
  Status OpenContext();
  Status OpenWorker();

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string worker_address_;
  UcxHost host_{};
  bool logged_ = false;
};

// Page-aligned, zeroed, registered; allocated by UCX, so that processes of one machine can map it.
class UcxMemory {
 public:
  // kOutOfSpace.
  static Result<std::unique_ptr<UcxMemory>> Create(UcxContext& context, size_t bytes);
  ~UcxMemory();

  std::span<std::byte> bytes() const { return bytes_; }

  // What a peer needs to write here; "" if there are no bytes.
  Result<std::string> PackKey() const;

 private:
  explicit UcxMemory(UcxContext& context) : context_(context) {}

  UcxContext& context_;
  ucp_mem_h handle_ = nullptr;
  std::span<std::byte> bytes_;
};

}  // namespace lamina
