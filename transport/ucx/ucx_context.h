// What the endpoints, listeners and buffers of a ucx fabric share: UCX's context and the poll set;
// and the memory that UCX allocates for windows and buffers.
#pragma once

#include <ucp/api/ucp.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/status.h"
#include "transport/mapping.h"
#include "transport/poll_set.h"
#include "transport/posix.h"
#include "transport/ucx/ucx_wire.h"

namespace lamina {

class UcxEndpoint;

// The text of an error of UCX: "ucp_put_nbx: Endpoint timeout".
std::string UcxText(std::string_view call, ucs_status_t status);

// Owns UCX's context. Outlives everything that is made with it. Thread: owner.
class UcxContext {
 public:
  // Which transports UCX may use is decided here (kLocalTransports in ucx_context.cc); the rest of
  // UCX's configuration comes from the environment. kNotFound if UcxTrustedDevices names devices
  // and this machine has none; kInternal with UCX's reason if UCX does not start.
  static Result<std::unique_ptr<UcxContext>> Create();
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h context() const { return context_; }

  // Identifies this machine for UcxOffer::host.
  const UcxHost& host() const { return host_; }

  // Finds out which peers are gone, and tells their endpoints.
  void CheckSockets();

  // Logs the path and lanes of the first connection at level info; later calls do nothing.
  void LogOnce(std::string_view how, const std::string& lanes);

  PollSet poll_set;            // the events of UCX's workers, and the rendezvous sockets
  boost::asio::io_context io;  // never run: the sockets are polled
  std::unordered_set<UcxEndpoint*> endpoints;  // only read in the steady state
  // Set by the fabric's Arm: the owner may sleep, and a socket may be what wakes it, so the next
  // Poll looks at the sockets.
  bool may_have_slept = false;

 private:
  UcxContext() = default;
  Status Open();

  ucp_context_h context_ = nullptr;
  UcxHost host_{};
  bool logged_ = false;  // LogOnce was called
};

// Whether UCX is to write between processes of one machine as it does between machines, and not
// this process: the environment variable LAMINA_UCX_PATH is "puts".
bool WantsUcxPuts();

// Memory for a region or a buffer: page-aligned and zeroed. Other processes of the machine can map
// it; UCX knows it only where it is to write there, over trusted devices or because of
// WantsUcxPuts. Owns the memory. Thread: owner of the context.
class UcxMemory {
 public:
  // kOutOfSpace if there is no memory, kInternal if what UCX allocates cannot be used.
  static Result<std::unique_ptr<UcxMemory>> Create(UcxContext& context, size_t bytes);
  ~UcxMemory();

  std::span<std::byte> bytes() const { return bytes_; }

  // By which other processes of the machine reach it (OpenSealedMemory); -1 if UCX allocated it.
  int descriptor() const { return file_.get(); }

  // The packed key with which UCX can write here; "" if UCX does not know the memory. kInternal
  // with UCX's reason.
  Result<std::string> PackKey() const;

 private:
  explicit UcxMemory(UcxContext& context) : context_(context) {}
  Status Map(size_t bytes);       // as sealed memory
  Status Register();              // what Map has made
  Status Allocate(size_t bytes);  // has UCX do it

  UcxContext& context_;
  ucp_mem_h handle_ = nullptr;
  UniqueFd file_;
  Mapping mapping_;
  std::span<std::byte> bytes_;
};

}  // namespace lamina
