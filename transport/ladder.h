// Several fabrics at once: which one joins two nodes is decided for each pair, by trying them from
// the best to the plainest.
//
// The listening side offers every fabric that it could open. The connecting side takes the first
// offer that works for it and keeps the reason why it passed over the others. The ladder begins
// with shared memory, as nothing between two processes of one host is faster; two hosts share none
// and go on to the next rung. A fabric that the cluster YAML names comes before all others.
//
//   LadderKinds("auto", false)  ->  Ladder::Open(kinds)
//   listening side:   Listen("10.0.0.1"), send offers() to the other node, Accept until ok
//   connecting side:  StartConnect(offers, ...), Poll until it is over
#pragma once

#include <poll.h>

#include <deque>
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

// Why a fabric was not used, such as {"verbs", "this host has no RDMA device"}.
struct Refusal {
  std::string fabric;
  std::string why;
};

// "verbs: no RDMA device; ucx: ...", "" if nothing was refused.
std::string RefusalText(std::span<const Refusal> refused);

// A connection and the fabric that it runs on. Sources of its posts come from that fabric's
// Allocate. The ladder owns the fabric and must outlive the endpoint.
struct Path {
  Fabric* fabric = nullptr;
  std::unique_ptr<Endpoint> endpoint;
  std::vector<Refusal> refused;  // why better fabrics were passed over; connecting side only
};

// A path that is being made: one fabric after another is tried. Made by Ladder::StartConnect.
// Destroying it gives it up. Thread: owner of the ladder.
class ConnectingPath {
 public:
  // Goes on without waiting, as Connecting::Poll does. Returns the path; kTryAgain while it is
  // under way; kPeerLost with every reason if none of the fabrics works; kInvalidArgument if the
  // last fabric finds the arguments invalid. REQUIRES: every call before this one returned
  // kTryAgain.
  Result<Path> Poll();

  // When to call Poll again at the latest; Ladder::Sleep wakes the owner when it gets further
  // before that. REQUIRES: Poll returned kTryAgain.
  TimePoint wake_at() const { return connecting_->wake_at(); }

 private:
  friend class Ladder;
  // A fabric that both ends have, and where the other end listens.
  struct Rung {
    Fabric* fabric;
    std::string address;
  };
  ConnectingPath(const EndpointOptions& options, Deadline deadline)
      : options_(options), deadline_(deadline) {}
  // Begins with rungs_.front(). REQUIRES: there is one.
  Status Begin();
  bool OnLastRung() const { return rungs_.size() == 1; }

  const EndpointOptions options_;
  const Deadline deadline_;
  std::deque<Rung> rungs_;                  // those that have not failed, best first
  std::unique_ptr<Connecting> connecting_;  // over the first of them; null: not begun
  std::vector<Refusal> refused_;
};

// The fabrics to try for the `kind` of a cluster YAML, best first. "auto" is the whole ladder;
// another kind is that fabric alone or, with `fallback`, that fabric and then the rest of the
// ladder. kInvalidArgument for an unknown kind, naming those that exist.
Result<std::vector<std::string>> LadderKinds(std::string_view kind, bool fallback);

class Ladder;
// The type of Ladder::Open, for which tests pass a function of their own.
using OpenLadder =
    std::function<Result<std::unique_ptr<Ladder>>(std::span<const std::string> kinds)>;

// Owns its fabrics. Outlives the endpoints and buffers that they make. Thread: owner, the same for
// the fabrics in it.
class Ladder {
 public:
  // Opens those of `kinds` (names that OpenFabric takes, best first) that this machine has. Behind
  // another kind ucx is opened only if RDMA devices are named for it (UcxTrustedDevices) and verbs
  // is not open. kNotFound with every reason if none can be opened; kInvalidArgument if one is
  // named twice or there are more kinds than the ladder has.
  static Result<std::unique_ptr<Ladder>> Open(std::span<const std::string> kinds);

  // Takes fabrics that are open already, best first.
  explicit Ladder(std::vector<std::unique_ptr<Fabric>> fabrics);

  // From here on what its fabrics carry takes as long as `link` would take (transport/modelled/).
  // The peer's ladder must model its link too. REQUIRES: not listening, nobody connected, called
  // once.
  void Model(const ModelledLink& link);

  // Listens on every open fabric: at free ports of `host` ("10.0.0.1", "::1" or "[::1]"), and for
  // shm and loopback at a generated name. A fabric that cannot listen is passed over and logged;
  // kNotFound with every reason if none can. REQUIRES: not listening yet.
  Status Listen(const std::string& host);

  // What the other side passes to StartConnect, such as "shm=NAME@HOSTID,tcp=10.0.0.1:4711". "" if
  // not listening.
  const std::string& offers() const { return offers_; }

  // The next peer of any of the fabrics, also behind one that has an error. If there is none:
  // kTryAgain, or the error of Listener::Accept of the first fabric that has one.
  Result<Path> Accept(const EndpointOptions& options);

  // Begins to connect by the best of the offers that works, until `deadline`. Each fabric but the
  // last has 5 s. kInvalidArgument for text that is no offer; other errors come from
  // ConnectingPath::Poll.
  Result<std::unique_ptr<ConnectingPath>> StartConnect(const std::string& offers,
                                                       const EndpointOptions& options,
                                                       Deadline deadline);

  // StartConnect, and Poll until there is a path or `deadline`. Blocks; for callers with nothing
  // else on this ladder to look after.
  Result<Path> Connect(const std::string& offers, const EndpointOptions& options,
                       Deadline deadline);

  // Sleeps until a fabric or one of `fds` has something, or `deadline`.
  void Sleep(std::span<const int> fds, Deadline deadline);

  // Fabrics that this machine does not have, with the reason.
  const std::vector<Refusal>& missing() const { return missing_; }

 private:
  Ladder() = default;
  Fabric* Find(std::string_view kind) const;

  std::unique_ptr<ModelledNic> nic_;              // null without Model; outlives the fabrics
  std::vector<std::unique_ptr<Fabric>> fabrics_;  // best first
  struct Listening {
    Fabric* fabric;
    std::unique_ptr<Listener> listener;
  };
  std::vector<Listening> listeners_;
  std::vector<Refusal> missing_;
  std::string offers_;
  std::vector<pollfd> sleeping_;  // of Sleep, kept so that it does not allocate
};

}  // namespace lamina
