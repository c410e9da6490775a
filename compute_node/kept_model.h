// The model that a compute node has loaded. It outlives its session for a while, because a manager
// that connects anew needs it again.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "compute_node/compute_device.h"
#include "node/manager_channel.h"
#include "wire/session_messages.h"

namespace lamina {

// Thread: owner.
class KeptModel {
 public:
  // Borrows the device.
  explicit KeptModel(ComputeDevice& device) : device_(device) {}

  // Loads some more weights, at least one, if a model is being loaded, and returns whether there
  // was one to load. If not, it need not be called before wake_at, if there is one. Frees the model
  // if nobody has used it for a while. To be called at least every second or so.
  bool Turn(TimePoint now);
  TimePoint wake_at() const { return loading_ == nullptr ? TimePoint::max() : loading_->wake_at(); }

 private:
  friend class AwaitedModel;
  Status Ask(const ConfigureCompute& request);
  void LoadOne(TimePoint now);

  ComputeDevice& device_;
  std::string source_;        // what it is loaded from, to compare with the next request's
  uint64_t num_started_ = 0;  // loadings; the last one is that of source_
  // At most one of the three: it is being loaded, is there, or could not be loaded.
  std::unique_ptr<LoadingModel> loading_;
  std::shared_ptr<const LoadedModel> loaded_;
  Status failed_;
  WeightsProgress progress_;  // how far the last loading is or was
  TimePoint used_last_{};
};

// A manager's wait for a model. Value type; borrows the KeptModel. Thread: its owner.
class AwaitedModel {
 public:
  // Asks for the model that `request` names, or for this node's share of it: the one that is here
  // or being loaded, if its files have not changed, or else one that is loaded from here on. The
  // next model takes the place of the one before, but frees no memory in use; who waits for the one
  // before gets an error. Errors, also of Poll, are those of ComputeDevice::StartLoad.
  static Result<AwaitedModel> Ask(KeptModel& models, const ConfigureCompute& request,
                                  const ManagerConnection& manager);

  // Null until it is loaded; tells the manager from time to time how far it is. Whoever has the
  // model shares it. kTryAgain if another one was asked for since.
  std::optional<Result<std::shared_ptr<const LoadedModel>>> Poll();

  const ManagerConnection& manager() const { return manager_; }

 private:
  AwaitedModel(KeptModel& models, const ManagerConnection& manager)
      : models_(&models), manager_(manager), loading_(models.num_started_) {}

  KeptModel* models_;
  ManagerConnection manager_;
  uint64_t loading_;
  bool was_told_ = false;  // how far it is
  TimePoint next_report_{};
};

}  // namespace lamina
