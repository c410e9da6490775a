// The compute node's daemon: loads the model that the manager names, connects to the memory nodes
// and to other compute nodes, and carries out orders.
//
// A session with a manager begins with ConfigureCompute and ends with the manager's connection.
// There is at most one session at a time. Everything, orders included, runs on the thread that
// calls Run, with the help of a WorkerTeam. Apart from the loading of weights nothing in there
// waits: data paths that are being opened are looked at in every turn.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "base/departure.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/context_exchange.h"
#include "compute_node/remote_attention.h"
#include "compute_node/step_runner.h"
#include "node/node_options.h"
#include "transport/control_port.h"
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

  // One round of Run, for who drives the node himself: handles what has come, goes on with data
  // paths that are being opened and runs one slice, without waiting. `now` is the present time.
  // Returns false if there was nothing to do. Then it need not be called before something comes or
  // wake_at.
  bool Turn(TimePoint now);
  TimePoint wake_at(TimePoint now) const;

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
    std::unique_ptr<StepRunner> runner;      // borrows model
    std::optional<JoiningExchange> joining;  // while it joins other compute nodes
  };
  // A session that begins: its memory nodes are being connected.
  struct Opening {
    ConfigureCompute request;
    std::unique_ptr<Session> session;
    std::optional<ConnectingAttention> attention;  // last: it uses the session's ladder
  };
  // Outlives its session for a while, because a manager that reconnects needs it again.
  struct Model {
    std::unique_ptr<LoadedModel> loaded;
    std::string source;  // what it was loaded from, to compare with the next session's
    TimePoint used_last{};
  };

  explicit ComputeNode(const NodeOptions& options);

  // Whether steps are under way, or other compute nodes may need polls of this one.
  bool RunsSteps(TimePoint now) const;
  bool Advance();
  // Answers an order that cannot be begun: all of its sequences fail.
  void Refuse(const ComputeOrder& order, const Status& why);
  void Sleep(TimePoint now);
  bool HandleControl();
  void HandleLoss(uint64_t connection, const Status& why);
  void HandleFrame(uint64_t connection, const ControlFrame& frame);
  void TellRecords(uint64_t connection, const TraceQuery& query);
  void Configure(uint64_t connection, const std::string& payload);
  Result<Configured> Prepare(uint64_t connection, const ConfigureCompute& request);
  // Open begins a session, ContinueOpening goes on with it, and OpenWith ends that. The manager is
  // answered when it is over. ContinueOpening returns whether it is.
  void Open(uint64_t connection, const ConfigureCompute& request);
  Status BeginOpening(uint64_t connection, const ConfigureCompute& request);
  bool ContinueOpening();
  Result<Configured> OpenWith(std::unique_ptr<AttentionStrategy> attention);
  void EndOpening(const Result<Configured>& outcome);
  // The same for joining other compute nodes.
  void JoinOthers(const std::string& payload);
  Status BeginJoining(const ConnectCompute& request);
  bool ContinueJoining();
  void SendConfigured(uint64_t connection, const Result<Configured>& outcome);
  Status LoadModel(uint64_t connection, const ConfigureCompute& request);
  void EndSession();
  void Send(uint64_t connection, MessageType type, std::string message);

  const NodeOptions options_;
  std::unique_ptr<ControlPort> control_;
  WorkerTeam team_;
  std::unique_ptr<ComputeDevice> device_;
  Model model_;
  std::unique_ptr<Session> session_;
  std::unique_ptr<Opening> opening_;  // null: no session begins
  TimePoint last_under_way_{};        // when a step was under way last
  RareLines connected_lines_, dropped_lines_, refused_lines_, unsent_lines_;
  Departure departure_{options_.drain_timeout};
};

// Makes the attention of a cluster without memory nodes (local_attention.h), with
// `kv_capacity_tokens` token slots. kOutOfSpace if the device has no room for them.
Result<std::unique_ptr<AttentionStrategy>> MakeLocalAttention(const ConfigureCompute& request,
                                                              int64_t kv_capacity_tokens,
                                                              ComputeDevice& device);

}  // namespace lamina
