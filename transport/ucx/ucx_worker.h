// UCX's worker of one connection and its endpoint for the peer. Each connection has a worker of its
// own, because a worker is a queue that whoever sends to it shares: in shared memory a sender takes
// the next place in it and then fills the place, and if its process is killed in between, the
// worker delivers nothing that came behind, whoever sent it. So a peer can hold up only itself.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "transport/poll_set.h"
#include "transport/ucx/ucx_context.h"
#include "transport/ucx/ucx_wire.h"

namespace lamina {

// Hears what a worker receives, inside UcxWorker::Progress.
class UcxReceiver {
 public:
  virtual ~UcxReceiver() = default;
  // Whoever can send to the worker may have sent it: the peer is not trusted, nor is it known to be
  // the peer.
  virtual void OnNotice(const UcxNotice& notice) = 0;
  // UCX has lost the peer. Comes only from peers on other machines.
  virtual void OnError(ucs_status_t status) = 0;
};

// Owns UCX's worker and endpoint. Once it is destroyed UCX refers to nothing that was given to it,
// whatever became of requests in flight. Thread: owner of the context.
class UcxWorker {
 public:
  // Joins the context's poll set. `receiver` outlives the worker. kOutOfSpace if this process may
  // lock too little memory for UcxTrustedDevices; kInternal with UCX's reason if UCX does not make
  // one.
  static Result<std::unique_ptr<UcxWorker>> Create(UcxContext& context, UcxReceiver& receiver);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // By which a peer reaches this worker; opaque, UCX's own.
  const std::string& address() const { return address_; }

  // Makes the endpoint for the peer whose worker has `address`, once. kPeerLost if UCX finds no way
  // to it.
  Status Connect(const std::string& address, bool is_local);
  ucp_ep_h endpoint() const { return endpoint_; }  // null until Connect has succeeded
  ucp_worker_h worker() const { return worker_; }

  // The lanes by which UCX reaches the peer, in UCX's words: "lane[0]: 1:tcp/eth0.0 ...; lane[1]:
  // ...". REQUIRES: endpoint() is not null.
  std::string Lanes() const;

  // Lets UCX receive, and continue what is in flight. Returns false if there was nothing to do.
  bool Progress() { return ucp_worker_progress(worker_) != 0; }

  // True if the context's poll set becomes readable as soon as UCX has something to do here; false
  // if it has something now.
  bool Arm();

 private:
  explicit UcxWorker(UcxReceiver& receiver) : receiver_(receiver) {}
  Status Open(UcxContext& context);
  // Called by UCX.
  static ucs_status_t OnMessage(void* worker, const void* header, size_t header_bytes, void* data,
                                size_t data_bytes, const ucp_am_recv_param_t* param);
  static void OnError(void* worker, ucp_ep_h endpoint, ucs_status_t status);

  UcxReceiver& receiver_;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
  std::string address_;
  std::optional<PollEntry> wakeup_;
};

}  // namespace lamina
