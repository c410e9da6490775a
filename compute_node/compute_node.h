// The compute node's daemon: it talks with managers over the control channel, keeps the model that
// they name, and gives their session (compute_session.h) its turns.
//
// A session begins with ConfigureCompute and ends when the manager's connection does. There is at
// most one at a time, and another manager is told so. Everything, orders included, runs on the
// thread that calls Run, with the help of a WorkerTeam. Nothing in there waits: a model is loaded
// some weights a turn, and data paths that are being opened are looked at in every turn.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/compute_device.h"
#include "compute_node/compute_session.h"
#include "compute_node/kept_model.h"
#include "node/manager_channel.h"
#include "node/node_options.h"

namespace lamina {

// Thread: owner, except Stop and Leave.
class ComputeNode {
 public:
  // Listens for a manager. kUnimplemented if the device is a GPU and this program was built without
  // CUDA, or if weights are to lie outside a GPU's memory; kNotFound if there is no such
  // GPU. Other errors are those of ManagerChannel::Open.
  static Result<std::unique_ptr<ComputeNode>> Create(const NodeOptions& options,
                                                     const ComputeOffload& offload = {});

  const std::string& address() const { return managers_->address(); }

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
  void Stop() { managers_->departure().AskNow(); }
  void Leave() { managers_->departure().Ask(); }

 private:
  explicit ComputeNode(const NodeOptions& options);

  void Sleep(TimePoint now);
  // The session of this manager, also one that is being opened; null if it has none.
  ComputeSession* SessionOf(const ManagerConnection& manager) const;
  void HandleLoss(const ManagerConnection& lost, const Status& why);
  void HandleFrame(const ManagerConnection& from, const ControlFrame& frame);
  void Configure(const ManagerConnection& from, const std::string& payload);
  // Goes on with opening the session; returns whether that is over. Then the manager is answered.
  bool ContinueOpening();
  void EndOpening(const Result<Configured>& outcome);
  // Has a model loaded before there is a session. REQUIRES: no other one is being prepared.
  void Prepare(const ManagerConnection& from, const ConfigureCompute& request);
  // Answers the order to prepare a model if that is over.
  void ContinuePreparing();
  void EndPreparing(const Status& outcome);

  const NodeOptions options_;
  WorkerTeam team_;
  std::unique_ptr<ComputeDevice> device_;
  std::unique_ptr<ManagerChannel> managers_;
  std::optional<KeptModel> model_;  // set once there is a device
  // The model that a manager wants to be loaded before it orders a session.
  std::optional<AwaitedModel> preparing_;
  // Last: it uses all of these. It may still be opening.
  std::unique_ptr<ComputeSession> session_;
};

}  // namespace lamina
