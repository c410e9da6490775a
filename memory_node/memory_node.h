// The memory node's daemon: it talks with managers over the control channel, and gives their
// session (memory_session.h) its turns.
//
// A session begins with ConfigureMemory and ends when the manager's connection does. There is at
// most one at a time, and another manager is told so. Its KV is kept for a while, so that a manager
// that connects its nodes anew finds it (ConfigureMemory::kv_id), and is dropped at once for one
// that wants a session without it. Everything runs on the caller's thread, except the control
// channel's own threads and the kernels' team.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/worker_team.h"
#include "memory_node/memory_node_options.h"
#include "memory_node/memory_session.h"
#include "node/manager_channel.h"

namespace lamina {

// Thread: owner, except Stop and Leave.
class MemoryNode {
 public:
  // Errors are those of CheckKvDevice and of ManagerChannel::Open.
  static Result<std::unique_ptr<MemoryNode>> Create(const MemoryNodeOptions& options);

  const std::string& address() const { return managers_->address(); }

  // Serves until Stop or, after Leave, until no manager has a session here or options.drain_timeout
  // is over. False if it left with a manager's session, which has lost this node by that.
  bool Run();

  // One round of Run, for who drives the node himself: handles what has come, without waiting.
  // `now` is the present time. Returns false if there was nothing to do. Then it need not be called
  // before something comes or wake_at.
  bool Turn(TimePoint now);
  TimePoint wake_at(TimePoint now) const;

  // Thread: any, and from a signal handler.
  void Stop() { managers_->departure().AskNow(); }
  void Leave() { managers_->departure().Ask(); }

 private:
  MemoryNode(const MemoryNodeOptions& options, std::unique_ptr<ManagerChannel> managers);

  void Sleep();
  // The session of this manager; null if it has none.
  MemorySession* SessionOf(const ManagerConnection& manager) const;
  void HandleFrame(const ManagerConnection& from, const ControlFrame& frame);
  void Configure(const ManagerConnection& from, const std::string& payload);
  void EndSession(const std::string& why);
  // The kept KV, if it is what the order names or can take over, and drops it otherwise.
  KvState TakeKept(const ConfigureMemory& request);
  void DropKept(const std::string& why);

  const MemoryNodeOptions options_;
  const std::unique_ptr<ManagerChannel> managers_;
  WorkerTeam team_;
  std::unique_ptr<MemorySession> session_;
  // Of the last session, while there is none.
  struct Kept {
    uint64_t id = 0;
    AttentionSpec attention;
    KvState kv;
    TimePoint until;
  };
  std::optional<Kept> kept_;
};

}  // namespace lamina
