// What the endpoints, listeners and buffers of a ucx fabric share: UCX's context and its one
// worker; and the memory that UCX allocates for windows and buffers.
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

// The text of an error of UCX: "ucp_put_nbx: Endpoint timeout".
std::string UcxText(std::string_view call, ucs_status_t status);

// Owns UCX's context and worker. Outlives everything that is made with it. Thread: owner.
class UcxContext {
 public:
  // Which transports UCX may use is decided here (kLocalTransports in ucx_context.cc); the rest of
  // UCX's configuration comes from the environment. kNotFound if UcxTrustedDevices names devices
  // and this machine has none; kOutOfSpace if this process may lock too little memory for them;
  // kInternal with UCX's reason if UCX does not start.
  static Result<std::unique_ptr<UcxContext>> Create();
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h context() const { return context_; }
  ucp_worker_h worker() const { return worker_; }
  const std::string& worker_address() const { return worker_address_; }

  // Identifies this machine for UcxOffer::host.
  const UcxHost& host() const { return host_; }

  // Lets UCX receive, and continue what is in flight. Runs the callbacks of endpoints. Returns
  // false if there was nothing to do.
  bool Progress() { return ucp_worker_progress(worker_) != 0; }

  // True if poll_set becomes readable as soon as UCX has something to do; false if it has something
  // now.
  bool Arm();

  // Finds out which peers are gone, and tells their endpoints.
  void CheckSockets();

  // A random id for a new endpoint. Who has not been told it cannot send notices to that endpoint.
  // kInternal if the system has no random bytes.
  Result<uint64_t> NewId() const;

  // The lanes by which UCX reaches the peer of `endpoint`, in UCX's words: "lane[0]: 1:tcp/eth0.0
  // ...; lane[1]: ...".
  static std::string Lanes(ucp_ep_h endpoint);

  // Logs the path and lanes of the first connection at level info; later calls do nothing.
  void LogOnce(std::string_view how, const std::string& lanes);

  PollSet poll_set;                                      // UCX's events and the rendezvous sockets
  boost::asio::io_context io;                            // never run: the sockets are polled
  std::unordered_map<uint64_t, UcxEndpoint*> endpoints;  // by id; only read in the steady state
  // Set by Arm: the owner may sleep, and a socket may be what wakes it, so the next Poll looks at
  // the sockets.
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
  bool logged_ = false;  // LogOnce was called
};

// Memory for a region or a buffer: page-aligned, zeroed and registered. UCX allocates it, so that
// other processes of the machine can map it. Owns the memory. Thread: owner of the context.
class UcxMemory {
 public:
  // kOutOfSpace if UCX cannot allocate it, kInternal if what UCX allocates cannot be used.
  static Result<std::unique_ptr<UcxMemory>> Create(UcxContext& context, size_t bytes);
  ~UcxMemory();

  std::span<std::byte> bytes() const { return bytes_; }

  // The packed key with which a peer can write here; "" if there are no bytes. kInternal with UCX's
  // reason.
  Result<std::string> PackKey() const;

 private:
  explicit UcxMemory(UcxContext& context) : context_(context) {}

  UcxContext& context_;
  ucp_mem_h handle_ = nullptr;
  std::span<std::byte> bytes_;
};

}  // namespace lamina
