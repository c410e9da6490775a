#include "transport/transport.h"

#include <poll.h>

#include <array>
#include <ctime>

#include "base/descriptors.h"
#include "transport/loopback/loopback_fabric.h"
#include "transport/posix.h"
#include "transport/shm/shm_fabric.h"
#include "transport/tcp/tcp_fabric.h"
#ifdef LAMINA_HAVE_UCX
#include "transport/ucx/ucx_fabric.h"
#endif
#ifdef LAMINA_HAVE_VERBS
#include "transport/verbs/verbs_fabric.h"
#endif

namespace lamina {
namespace {

// File descriptors of an open fabric with its listener and a modelled network around it. UCX takes
// the most, and ends the process if it cannot have them.
constexpr size_t kFabricDescriptors = 24;
// How long a blocking Connect pauses where something else on the fabric keeps it from sleeping.
constexpr auto kAwakePause = milliseconds(1);

}  // namespace

Result<std::unique_ptr<Endpoint>> Fabric::Connect(const std::string& address,
                                                  const EndpointOptions& options,
                                                  Deadline deadline) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Connecting> connecting,
                          StartConnect(address, options, deadline));
  while (true) {
    Result<std::unique_ptr<Endpoint>> endpoint = connecting->Poll();
    if (endpoint.status().code() != StatusCode::kTryAgain) return endpoint;
    if (Arm())
      WaitForFd(event_fd(), POLLIN, deadline.NoLaterThan(connecting->wake_at()));
    else
      PauseBeforeRetry(deadline.NoLaterThan(Clock::now() + kAwakePause));
  }
}

Result<std::unique_ptr<Fabric>> OpenFabric(std::string_view kind) {
  LAMINA_RETURN_IF_ERROR(CheckDescriptorsLeft(kFabricDescriptors));
  if (kind == "tcp") return OpenTcpFabric();
  if (kind == "shm") return OpenShmFabric();
  if (kind == "loopback") return OpenLoopbackFabric();
  if (kind == "verbs") {
#ifdef LAMINA_HAVE_VERBS
    return OpenVerbsFabric();
#else
    return NotFound(
        "this build has no transport verbs: libibverbs was not there; install libibverbs-dev and "
        "ibverbs-providers and build again");
#endif
  }
  if (kind == "ucx") {
#ifdef LAMINA_HAVE_UCX
    return OpenUcxFabric();
#else
    return NotFound(
        "this build has no transport ucx: UCX was not there; install libucx-dev and build again");
#endif
  }
  return InvalidArgument("transport \"" + std::string(kind) +
                         "\" does not exist; there are tcp, shm, verbs, ucx and loopback");
}

Status PostToDevice(Endpoint& endpoint, std::span<const std::byte> message, uint64_t peer_offset,
                    uint64_t tag) {
  // The ops of a post are written in order: the number that announces the message comes second.
  constexpr size_t kNumber = sizeof(uint64_t);
  const std::array<WriteOp, 2> ops = {
      WriteOp{message.subspan(kNumber), peer_offset + kNumber, true},
      WriteOp{message.first(kNumber), peer_offset, true}};
  return endpoint.Post(ops, std::nullopt, tag);
}

void Sleep(Fabric& fabric, std::span<const int> fds, Deadline deadline) {
  if (!fabric.Arm()) return;
  // The usual handful of descriptors needs no allocation.
  std::array<pollfd, 16> few;
  std::vector<pollfd> many;
  if (fds.size() + 1 > few.size()) many.resize(fds.size() + 1);
  const std::span<pollfd> entries =
      many.empty() ? std::span(few).first(fds.size() + 1) : std::span(many);
  for (size_t i = 0; i < fds.size(); ++i) entries[i] = {fds[i], POLLIN, 0};
  entries.back() = {fabric.event_fd(), POLLIN, 0};
  WaitForAnyFd(entries, deadline);
}

}  // namespace lamina
