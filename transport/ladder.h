// Several fabrics at once: which one joins two nodes is decided per pair, by trying them from the
// best to the plainest.
//
// The listening side offers every fabric that it could open; the connecting side takes the first
// offer that works for it and keeps the reason why it passed over the others. The ladder begins
// with shared memory, as nothing between two processes of one host is faster; between hosts there
// is none. A fabric that was named comes before all others.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "transport/modelled/modelled_fabric.h"
#include "transport/transport.h"

namespace lamina {

// Why a fabric was not used: {"verbs", "this host has no RDMA device"}.
struct Refusal {
  std::string fabric;
  std::string why;
};

// "verbs: no RDMA device; ucx: ...", "" if nothing was refused.
std::string RefusalText(std::span<const Refusal> refused);

// A connection and the fabric that it runs on. Its buffers come from that fabric.
struct Path {
  Fabric* fabric = nullptr;
  std::unique_ptr<Endpoint> endpoint;
  std::vector<Refusal> refused;  // connecting side
};

// What to try for the `kind` of a cluster YAML: "auto" is the whole ladder; another kind is that
// fabric alone or, with `fallback`, the fabric and then the rest of the ladder. kInvalidArgument
// for an unknown kind, naming those that exist.
Result<std::vector<std::string>> LadderKinds(std::string_view kind, bool fallback);

class Ladder;
// Ladder::Open, or a test's.
using OpenLadder =
    std::function<Result<std::unique_ptr<Ladder>>(std::span<const std::string> kinds)>;

// Thread: owner, as the fabrics in it.
class Ladder {
 public:
  // Opens those of `kinds` (names as in OpenFabric, best first) that this machine has; ucx behind
  // others only if RDMA devices are named for it (UcxTrustedDevices) and verbs is not among those.
  // kNotFound with every reason if it has none of them.
  static Result<std::unique_ptr<Ladder>> Open(std::span<const std::string> kinds);

  // Of fabrics that are open already, best first.
  explicit Ladder(std::vector<std::unique_ptr<Fabric>> fabrics);

  // From here on what its fabrics carry takes the time of `link` (transport/modelled/). The other
  // side's must too. REQUIRES: not listening, nobody connected, called once.
  void Model(const ModelledLink& link);

  // Listens on every open fabric: at free ports of `host` ("10.0.0.1", "::1", "[::1]") and at names
  // of shared memory and loopback. A fabric that cannot listen there is passed over; kNotFound with
  // every reason if none can. REQUIRES: not listening yet.
  Status Listen(const std::string& host);

  // What the other side connects to: text for another machine's Connect, such as
  // "shm=NAME@HOSTID,tcp=10.0.0.1:4711". "" if not listening.
  const std::string& offers() const { return offers_; }

  // The next peer of any of the fabrics, or kTryAgain. As Listener::Accept.
  Result<Path> Accept(const EndpointOptions& options);

  // Blocks until one of the offers works or `deadline`. kPeerLost with every reason if none does;
  // kInvalidArgument for text that is no offer.
  Result<Path> Connect(const std::string& offers, const EndpointOptions& options,
                       Deadline deadline);

  // Sleeps until a fabric or one of `fds` has something, or `deadline`.
  void Sleep(std::span<const int> fds, Deadline deadline);

  // Fabrics that this machine does not have, with the reason.
  const std::vector<Refusal>& missing() const { return missing_; }

 private:
  Ladder() = default;
  Fabric* Find(std::string_view kind) const;

  std::unique_ptr<ModelledNic> nic_;              // of Model; before the fabrics that borrow it
  std::vector<std::unique_ptr<Fabric>> fabrics_;  // best first
  struct Listening {
    Fabric* fabric;
    std::unique_ptr<Listener> listener;
  };
  std::vector<Listening> listeners_;
  std::vector<Refusal> missing_;
  std::string offers_;
  std::vector<pollfd> sleeping_;  // scratch
};

}  // namespace lamina
