// The compute node's daemon: loads the model that the manager names, connects to the memory nodes
// and to other compute nodes, and carries out orders.
//
// A session begins with ConfigureCompute and ends when the manager's connection does. Orders run on
// the caller's thread.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/backoff.h"
#include "base/departure.h"
#include "base/status.h"
#include "base/tls_files.h"
#include "base/worker_team.h"
#include "compute_node/step_runner.h"
#include "cost/node_device.h"
#include "transport/control_server.h"
#include "transport/ladder.h"
#include "transport/rare_warning.h"

namespace lamina {

struct ComputeNodeOptions {
  std::string name = "compute";
  std::string listen = "127.0.0.1:0";
  // Of the cluster (transport/secret_file.h); "": none; off the loopback there must be one, or tls.
  std::string secret_file;
  TlsFiles tls;         // empty: no TLS
  int num_threads = 0;  // 0: all cores
  // Each to one of the cores that the thread that creates the node may run on.
  bool pin_threads = false;
  NodeDevice device;  // the CPU unless another is named
  OpenLadder open_ladder = Ladder::Open;
  Clock::duration drain_timeout = kNodeDrainTimeout;
};

// Thread: owner, except Stop and Leave.
class ComputeNode {
 public:
  // kUnimplemented, kNotFound: as MakeComputeDevice. Else as ReadSecretFile, TlsContext::Load and
  // ControlServer::Create.
  static Result<std::unique_ptr<ComputeNode>> Create(const ComputeNodeOptions& options);

  const std::string& address() const { return control_->address(); }

  // Serves until Stop or, after Leave, until no manager has a session here or options.drain_timeout
  // is over. False if it left with a manager's session, which has lost this node by that.
  bool Run();

  // Thread: any, and from a signal handler.
  void Stop();
  void Leave();

 private:
  struct Session {
    uint64_t connection = 0;
    uint64_t epoch = 0;
    std::string token;
    std::string payload_checksum;  // the manager's setting
    NodeId self;
    control::Limits limits;
    DType wire_dtype = DType::kF32;
    std::shared_ptr<Ladder> ladder;  // null: attention stays here
    const LoadedModel* model = nullptr;
    std::unique_ptr<StepRunner> runner;  // borrows model
  };
  // Stays for a while when its session is over: managers that reconnect want it again.
  struct Model {
    std::unique_ptr<LoadedModel> loaded;
    std::string source;  // what it was loaded from: SourceOf
    TimePoint used_last{};
  };

  explicit ComputeNode(const ComputeNodeOptions& options);

  void Work(Backoff& backoff);
  void HandleFrame(uint64_t connection, const ControlFrame& frame);
  void TellRecords(uint64_t connection, const control::TraceRequest& request);
  void Configure(uint64_t connection, const std::string& payload);
  Result<control::Configured> Prepare(uint64_t connection,
                                      const control::ConfigureCompute& request);
  Result<control::Configured> Open(uint64_t connection, const control::ConfigureCompute& request);
  void JoinOthers(const std::string& payload);
  Result<control::Configured> Join(const control::ConnectCompute& request);
  void SendConfigured(uint64_t connection, const Result<control::Configured>& outcome);
  Status LoadModel(uint64_t connection, const control::ConfigureCompute& request);
  void EndSession();
  void Send(uint64_t connection, control::MessageType type,
            const google::protobuf::MessageLite& message);

  const ComputeNodeOptions options_;
  std::unique_ptr<ControlServer> control_;
  WorkerTeam team_;
  std::unique_ptr<ComputeDevice> device_;
  Model model_;
  std::unique_ptr<Session> session_;
  TimePoint last_under_way_{};
  RareLines connected_lines_, dropped_lines_, refused_lines_, unsent_lines_;
  WakeFd stop_wake_;
  Departure departure_{options_.drain_timeout};
};

// The attention backend that a configuration asks for: remote_attention.h with memory nodes,
// local_attention.h without. `kv_capacity_tokens` is for the latter, `ladder` for the former, and
// the slices that run here; none: all.
Result<std::unique_ptr<AttentionBackend>> MakeAttentionBackend(
    const control::ConfigureCompute& request, int64_t kv_capacity_tokens, ComputeDevice& device,
    std::shared_ptr<Ladder> ladder = nullptr, std::optional<SliceRange> slices = std::nullopt);

}  // namespace lamina
