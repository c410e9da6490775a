// What the endpoints, listeners and buffers of a ucx fabric share: UCX's context and its one
// worker; and the memory that UCX allocates for windows and buffers.
#pragma once

#include <ucp/api/ucp.h>

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transport/poll_set.h"
#include "transport/ucx/ucx_wire.h"

namespace lamina {

class UcxEndpoint;

// The text of an error of UCX: "ucp_put_nbx: Endpoint timeout".
std::string UcxText(std::string_view call, ucs_status_t status);

// UCX's endpoint for one connection, and which one of this worker towards the peer's worker it is,
// counted from 0.
struct UcxNumberedEndpoint {
  ucp_ep_h endpoint = nullptr;
  uint64_t number = 0;
};

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

  // Makes UCX's endpoint for a connection with the peer whose worker has `address`; the caller
  // closes it. All endpoints are made here: UCX joins the n-th one of either end to the n-th one of
  // the other, and this keeps the two in step when an end gave up a connection for which the other
  // had made its endpoint. `number` is UcxOffer::number of the peer: the endpoint that is returned
  // has the same number, or is the next one if the peer has none yet. Of two contexts the same one
  // must connect every time: attempts that cross may get endpoints of other attempts, which works
  // as long as none of them is given up. kPeerLost if UCX finds no way to the peer, or if `number`
  // is further ahead than a peer that follows the rules can be.
  Result<UcxNumberedEndpoint> MakeEndpoint(const std::string& address, bool is_local,
                                           uint64_t number);

  // Keeps memory that UCX refers to although its owner goes, for as long as the context.
  void Keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }

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
  // The endpoints that were made towards one worker of a peer. Kept as long as the context, as UCX
  // counts as long as its worker is there.
  struct Peer {
    uint64_t num_made = 0;
    // Those that no connection has taken, by number: of attempts that were given up, or whose
    // greeting is read later than that of a later attempt.
    std::map<uint64_t, ucp_ep_h> unused;
    bool is_local = false;
  };

  UcxContext() = default;
  Status Open();
  Status OpenContext();
  Status OpenWorker();
  // Makes the next endpoint towards `peer`, whose worker has `address`.
  Result<ucp_ep_h> MakeNext(Peer& peer, const std::string& address);
  // Closes what no connection will take any more.
  void CloseUnused(Peer& peer);
  // Called by UCX when it has lost the peer of an endpoint.
  static void OnError(void* context, ucp_ep_h endpoint, ucs_status_t status);

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string worker_address_;
  std::unordered_map<std::string, Peer> peers_;  // by the address of the peer's worker
  UcxHost host_{};
  std::vector<std::shared_ptr<void>> kept_;
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
