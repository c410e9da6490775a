// A manager's session on a compute node: its data paths, and the steps that it orders.
//
// All that the session has is in this object: destroying it, also while it opens, ends the session
// and frees its connections and the memory of its steps. The model outlives it (kept_model.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/compute_device.h"
#include "compute_node/context_exchange.h"
#include "compute_node/kept_model.h"
#include "compute_node/remote_attention.h"
#include "compute_node/step_runner.h"
#include "node/manager_channel.h"
#include "node/node_options.h"
#include "transport/ladder.h"

namespace lamina {

// Thread: owner.
class ComputeSession {
 public:
  // Begins to open what the order of `manager` asks for: checks it and asks for the model.
  // ContinueOpening waits for that, and connects to the memory nodes. Borrows options, models and
  // device. kInvalidArgument for an order that cannot be; other errors are those of
  // AwaitedModel::Ask.
  static Result<std::unique_ptr<ComputeSession>> Open(const ConfigureCompute& request,
                                                      const ManagerConnection& manager,
                                                      const NodeOptions& options, KeptModel& models,
                                                      ComputeDevice& device);
  ComputeSession(const ComputeSession&) = delete;
  ComputeSession& operator=(const ComputeSession&) = delete;

  // Goes on without waiting. Returns the answer to the order that opens the session once there is
  // one, and null until then. After an error, which may also be one of AwaitedModel::Poll, of the
  // ladder and of RemoteAttention::StartConnect, the session can only be destroyed. REQUIRES: every
  // call before this one returned null.
  std::optional<Result<Configured>> ContinueOpening();
  bool is_open() const { return runner_ != nullptr; }

  const ManagerConnection& manager() const { return manager_; }

  // Takes a message of its manager; returns false if it is malformed or not expected, as all are
  // before it is open.
  bool HandleFrame(const ControlFrame& frame);

  // Goes on with data paths to other compute nodes that are being opened and runs one slice,
  // without waiting. Returns false if there was nothing to do. Then it need not be called before
  // something comes or wake_at. REQUIRES: is_open().
  bool Turn(TimePoint now);
  TimePoint wake_at(TimePoint now) const;
  // Whether steps are under way, or other compute nodes may need polls of this one.
  bool RunsSteps(TimePoint now) const;
  // Sleeps until there may be something to do, one of `fds` is readable, or `latest`.
  void Sleep(std::span<const int> fds, TimePoint latest);

 private:
  ComputeSession(const ConfigureCompute& request, const AwaitedModel& model,
                 const NodeOptions& options, ComputeDevice& device);

  // The model is there.
  Status StartConnecting();
  // The last step of opening: from here on nothing is waited for.
  Result<Configured> OpenWith(std::unique_ptr<AttentionStrategy> attention);
  bool HandleOrder(const std::string& payload);
  // Answers an order that cannot be begun: all of its sequences fail.
  void Refuse(const ComputeOrder& order, const Status& why);
  bool LoseMemoryNode(const std::string& payload);
  bool TellRecords(const std::string& payload);
  // Begins to join other compute nodes. The manager is answered when that is over.
  void JoinOthers(const std::string& payload);
  Status BeginJoining(const ConnectCompute& request);
  bool ContinueJoining();
  bool Advance();

  const ConfigureCompute request_;  // the order that opened it
  const ManagerConnection manager_;
  const NodeOptions& options_;
  ComputeDevice& device_;
  AwaitedModel awaited_;
  // Shared with the node, which keeps it. Null until it is loaded.
  std::shared_ptr<const LoadedModel> model_;
  // Null if there are no memory nodes. Shared with the data paths.
  std::shared_ptr<Ladder> ladder_;
  std::optional<ConnectingAttention> connecting_;  // while memory nodes are being connected
  std::unique_ptr<StepRunner> runner_;             // null until it is open; borrows the model
  std::optional<JoiningExchange> joining_;         // while it joins other compute nodes
  TimePoint last_under_way_{};                     // when a step was under way last
};

// Makes the attention of a cluster without memory nodes (local_attention.h), with
// `kv_capacity_tokens` token slots. kOutOfSpace if the device has no room for them.
Result<std::unique_ptr<AttentionStrategy>> MakeLocalAttention(const ConfigureCompute& request,
                                                              const LoadedModel& model,
                                                              int64_t kv_capacity_tokens,
                                                              ComputeDevice& device);

}  // namespace lamina
