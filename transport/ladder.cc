#include "transport/ladder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <random>

#include "base/log.h"
#include "base/net_address.h"
#include "transport/posix.h"
#include "transport/rdma_host.h"

namespace lamina {
namespace {

// Best first: shm is the fastest wherever it joins two processes.
constexpr std::string_view kLadder[] = {"shm", "verbs", "ucx", "tcp"};
// How long one fabric is tried while others are left.
constexpr auto kAttempt = std::chrono::seconds(5);
// How often a blocking Connect looks whether its deadline was cancelled.
constexpr auto kCancelInterval = milliseconds(100);

struct Offer {
  std::string fabric;
  std::string address;
  std::string host_id;  // "" for fabrics that join hosts
};

bool IsOfOneHost(std::string_view fabric) { return fabric == "shm" || fabric == "loopback"; }

// Identifies this host and its network namespace. The name of a shm listener is an abstract socket
// name, which is found only within the same namespace. A container may share the host's kernel, so
// the boot id alone does not do.
std::string HostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  struct stat space {};
  (void)stat("/proc/self/ns/net", &space);
  return boot + "." + std::to_string(space.st_ino);
}

std::string UniqueName() {
  static std::atomic<uint32_t> count{0};
  return "lamina-" + std::to_string(getpid()) + "-" + std::to_string(++count) + "-" +
         std::to_string(std::random_device{}());
}

// "FABRIC=ADDRESS[@HOSTID],..."
Result<std::vector<Offer>> ParseOffers(const std::string& text) {
  std::vector<Offer> offers;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t equals = item.find('='), at = item.rfind('@');
    if (equals == std::string::npos || equals == 0)
      return InvalidArgument("\"" + item + "\" is no offer of a fabric; expected FABRIC=ADDRESS");
    Offer offer{item.substr(0, equals), item.substr(equals + 1), ""};
    if (IsOfOneHost(offer.fabric) && at != std::string::npos) {
      offer.address = item.substr(equals + 1, at - equals - 1);
      offer.host_id = item.substr(at + 1);
    }
    offers.push_back(std::move(offer));
    begin = end + 1;
  }
  if (offers.empty()) return InvalidArgument("no fabric is offered");
  return offers;
}

// Why a fabric that does not come first in the ladder is not opened; "" if it is. ucx is opened
// only where it could be the rung that is used.
std::string WhyNotBehindOthers(std::string_view kind, bool has_verbs) {
  if (kind != "ucx") return "";
  if (UcxTrustedDevices().empty()) {
    return std::string(
               "it joins processes of one host only, as shm does faster; between hosts it uses "
               "what ") +
           kUcxTrustedDevices + " names, which is not set";
  }
  return has_verbs ? "verbs reaches the same RDMA devices" : "";
}

}  // namespace

std::string RefusalText(std::span<const Refusal> refused) {
  std::string text;
  for (const Refusal& refusal : refused)
    text += (text.empty() ? "" : "; ") + refusal.fabric + ": " + refusal.why;
  return text;
}

Result<std::vector<std::string>> LadderKinds(std::string_view kind, bool fallback) {
  if (kind == "auto") return std::vector<std::string>(std::begin(kLadder), std::end(kLadder));
  if (std::find(std::begin(kLadder), std::end(kLadder), kind) == std::end(kLadder)) {
    return InvalidArgument("transport \"" + std::string(kind) +
                           "\" does not exist; there are auto, verbs, ucx, shm and tcp");
  }
  std::vector<std::string> kinds = {std::string(kind)};
  for (const std::string_view other : kLadder) {
    if (fallback && other != kind) kinds.emplace_back(other);
  }
  return kinds;
}

Result<std::unique_ptr<Ladder>> Ladder::Open(std::span<const std::string> kinds) {
  std::unique_ptr<Ladder> ladder(new Ladder());
  // At a node the kinds come from a Configure message. Without a bound it could open fabrics until
  // memory or descriptors run out.
  if (kinds.size() > std::size(kLadder))
    return InvalidArgument(std::to_string(kinds.size()) + " kinds of data path; there are " +
                           std::to_string(std::size(kLadder)));
  for (const std::string& kind : kinds) {
    if (std::ranges::count(kinds, kind) > 1)
      return InvalidArgument("data path \"" + kind + "\" is named twice");
    if (const std::string why =
            kind == kinds.front() ? "" : WhyNotBehindOthers(kind, ladder->Find("verbs") != nullptr);
        !why.empty()) {
      ladder->missing_.push_back({kind, why});
      continue;
    }
    Result<std::unique_ptr<Fabric>> fabric = OpenFabric(kind);
    if (fabric.ok()) {
      ladder->fabrics_.push_back(std::move(*fabric));
    } else {
      ladder->missing_.push_back({kind, fabric.status().message()});
    }
  }
  if (ladder->fabrics_.empty())
    return NotFound("no data path can be opened here: " + RefusalText(ladder->missing_));
  return ladder;
}

Ladder::Ladder(std::vector<std::unique_ptr<Fabric>> fabrics) : fabrics_(std::move(fabrics)) {}

void Ladder::Model(const ModelledLink& link) {
  nic_ = std::make_unique<ModelledNic>(ModelledNic{link, {}, {}});
  for (std::unique_ptr<Fabric>& fabric : fabrics_)
    fabric = MakeModelledFabric(std::move(fabric), *nic_);
}

Status Ladder::Listen(const std::string& host) {
  std::vector<Refusal> refused = missing_;
  for (const std::unique_ptr<Fabric>& fabric : fabrics_) {
    const std::string kind(fabric->name());
    Result<std::unique_ptr<Listener>> listener =
        fabric->Listen(IsOfOneHost(kind) ? UniqueName() : BracketedHost(host) + ":0");
    if (!listener.ok()) {
      refused.push_back({kind, listener.status().message()});
      LAMINA_LOG_INFO("{} is not offered: {}", kind, listener.status().message());
      continue;
    }
    offers_ += (offers_.empty() ? "" : ",") + kind + "=" + (*listener)->address() +
               (IsOfOneHost(kind) ? "@" + HostId() : "");
    listeners_.push_back({fabric.get(), std::move(*listener)});
  }
  if (listeners_.empty())
    return NotFound("no data path can listen at " + host + ": " + RefusalText(refused));
  return OkStatus();
}

Result<Path> Ladder::Accept(const EndpointOptions& options) {
  Status first = TryAgain();
  for (const Listening& listening : listeners_) {
    Result<std::unique_ptr<Endpoint>> endpoint = listening.listener->Accept(options);
    if (endpoint.ok()) return Path{listening.fabric, std::move(*endpoint), {}};
    if (first.code() == StatusCode::kTryAgain) first = endpoint.status();
  }
  return first;
}

Fabric* Ladder::Find(std::string_view kind) const {
  for (const std::unique_ptr<Fabric>& fabric : fabrics_) {
    if (fabric->name() == kind) return fabric.get();
  }
  return nullptr;
}

Result<std::unique_ptr<ConnectingPath>> Ladder::StartConnect(const std::string& offers,
                                                             const EndpointOptions& options,
                                                             Deadline deadline) {
  LAMINA_ASSIGN_OR_RETURN(const std::vector<Offer> offered, ParseOffers(offers));
  const std::string here = HostId();
  std::unique_ptr<ConnectingPath> path(new ConnectingPath(options, deadline));
  path->refused_ = missing_;
  for (const std::unique_ptr<Fabric>& fabric : fabrics_) {
    const std::string kind(fabric->name());
    const auto offer = std::find_if(offered.begin(), offered.end(),
                                    [&](const Offer& o) { return o.fabric == kind; });
    if (offer == offered.end()) {
      path->refused_.push_back({kind, "the other node does not offer it"});
    } else if (!offer->host_id.empty() && offer->host_id != here) {
      path->refused_.push_back({kind, "the other node is on another host"});
    } else {
      path->rungs_.push_back({fabric.get(), offer->address});
    }
  }
  return path;
}

Status ConnectingPath::Begin() {
  const Deadline attempt =
      OnLastRung() ? deadline_ : deadline_.NoLaterThan(Clock::now() + kAttempt);
  LAMINA_ASSIGN_OR_RETURN(
      connecting_, rungs_.front().fabric->StartConnect(rungs_.front().address, options_, attempt));
  return OkStatus();
}

Result<Path> ConnectingPath::Poll() {
  while (!rungs_.empty()) {
    Status status = connecting_ == nullptr ? Begin() : OkStatus();
    if (status.ok()) {
      Result<std::unique_ptr<Endpoint>> endpoint = connecting_->Poll();
      if (endpoint.ok())
        return Path{rungs_.front().fabric, *std::move(endpoint), std::move(refused_)};
      status = endpoint.status();
    }
    // Under way; or the caller's mistake, which no other fabric is left to take.
    if (status.code() == StatusCode::kTryAgain ||
        (status.code() == StatusCode::kInvalidArgument && OnLastRung()))
      return status;
    connecting_.reset();
    refused_.push_back({std::string(rungs_.front().fabric->name()), status.message()});
    rungs_.pop_front();
  }
  return PeerLost("no data path: " + RefusalText(refused_));
}

Result<Path> Ladder::Connect(const std::string& offers, const EndpointOptions& options,
                             Deadline deadline) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<ConnectingPath> connecting,
                          StartConnect(offers, options, deadline));
  while (true) {
    Result<Path> path = connecting->Poll();
    if (path.status().code() != StatusCode::kTryAgain) return path;
    // Nothing wakes the sleep when the deadline is cancelled.
    Sleep({}, Deadline(std::min(connecting->wake_at(), Clock::now() + kCancelInterval)));
  }
}

void Ladder::Sleep(std::span<const int> fds, Deadline deadline) {
  bool may_sleep = true;
  // Arms every fabric, also behind one that says no.
  for (const std::unique_ptr<Fabric>& fabric : fabrics_) may_sleep = fabric->Arm() && may_sleep;
  if (!may_sleep) return;
  sleeping_.clear();
  for (const int fd : fds) sleeping_.push_back({fd, POLLIN, 0});
  for (const std::unique_ptr<Fabric>& fabric : fabrics_)
    sleeping_.push_back({fabric->event_fd(), POLLIN, 0});
  WaitForAnyFd(sleeping_, deadline);
}

}  // namespace lamina
