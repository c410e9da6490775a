// The compute node's daemon: loads the model that the manager names, connects to the memory nodes
// and to other compute nodes, and carries out orders.
//
// A session with a manager begins with ConfigureCompute and ends with the manager's connection.
// There is at most one session at a time. Everything, orders included, runs on the thread that
// calls Run, with the help of a WorkerTeam.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/backoff.h"
#include "base/departure.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/step_runner.h"
#include "node/node_options.h"
#include "transport/control_server.h"
#include "transport/ladder.h"
#include "transport/rare_warning.h"

namespace lamina {

// Thread: owner, except Stop and Leave.
class ComputeNode {
 public:
  // Listens for a manager. kUnimplemented if the device is a GPU and this program was built without
  // CUDA; kNotFound if there is no such GPU. Other errors are those of the secret, of the TLS files
  // and of the address to listen on, and name the file or the address.
  static Result<std::unique_ptr<ComputeNode>> Create(const NodeOptions& options);

  const std::string& address() const { return control_->address(); }

  // Serves until Stop or, after Leave, until no manager has a session here or options.drain_timeout
  // has passed. Returns false if it ended a manager's session, for which this node is now lost.
  bool Run();

  // Stop makes Run return at once; Leave as soon as there is no session. Thread: any, also in a
  // signal handler.
  void Stop();
  void Leave();

 private:
  struct Session {
    uint64_t connection = 0;
    uint64_t epoch = 0;
    std::string token;
    Switch payload_checksum = Switch::kAuto;  // the manager's setting
    NodeId self;
    SessionLimits limits;
    DType wire_dtype = DType::kF32;
    std::shared_ptr<Ladder> ladder;  // null if there are no memory nodes
    const LoadedModel* model = nullptr;
    std::unique_ptr<StepRunner> runner;  // borrows model
  };
  // Outlives its session for a while, because a manager that reconnects needs it again.
  struct Model {
    std::unique_ptr<LoadedModel> loaded;
    std::string source;  // what it was loaded from, to compare with the next session's
    TimePoint used_last{};
  };

  explicit ComputeNode(const NodeOptions& options);

  // Runs one slice of a step under way, or sleeps if there is nothing to do.
  void Work(Backoff& backoff);
  void HandleFrame(uint64_t connection, const ControlFrame& frame);
  void TellRecords(uint64_t connection, const TraceQuery& query);
  void Configure(uint64_t connection, const std::string& payload);
  Result<Configured> Prepare(uint64_t connection, const ConfigureCompute& request);
  Result<Configured> Open(uint64_t connection, const ConfigureCompute& request);
  void JoinOthers(const std::string& payload);
  Result<Configured> Join(const ConnectCompute& request);
  void SendConfigured(uint64_t connection, const Result<Configured>& outcome);
  Status LoadModel(uint64_t connection, const ConfigureCompute& request);
  void EndSession();
  void Send(uint64_t connection, MessageType type, std::string message);

  const NodeOptions options_;
  std::unique_ptr<ControlServer> control_;
  WorkerTeam team_;
  std::unique_ptr<ComputeDevice> device_;
  Model model_;
  std::unique_ptr<Session> session_;
  TimePoint last_under_way_{};  // when a step was under way last
  RareLines connected_lines_, dropped_lines_, refused_lines_, unsent_lines_;
  WakeFd stop_wake_;
  Departure departure_{options_.drain_timeout};
};

// Makes the attention backend that a configuration asks for: with memory nodes that of
// remote_attention.h, which uses `ladder` and keeps prefill KV for the layers of `slices`, the ones
// that run here (nullopt: all); without memory nodes that of local_attention.h, with
// `kv_capacity_tokens` token slots. Connecting to memory nodes ends soon after `cancelled`, if
// there is one, becomes true.
Result<std::unique_ptr<AttentionBackend>> MakeAttentionBackend(
    const ConfigureCompute& request, int64_t kv_capacity_tokens, ComputeDevice& device,
    std::shared_ptr<Ladder> ladder = nullptr, std::optional<SliceRange> slices = std::nullopt,
    const std::atomic<bool>* cancelled = nullptr);

}  // namespace lamina
