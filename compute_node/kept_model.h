// The model that a compute node has loaded. It outlives its session for a while, because a manager
// that connects anew needs it again.
#pragma once

#include <atomic>
#include <memory>
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
  // Borrows both. `interrupted` ends a loading that is under way.
  KeptModel(ComputeDevice& device, const std::atomic<bool>& interrupted)
      : device_(device), interrupted_(interrupted) {}

  // The model that `request` names, or this node's share of it: the one that is here if its files
  // have not changed, or else loaded now. Blocks meanwhile, and tells `manager` how far it is.
  // Whoever has it shares it: the next model takes its place here, but frees no memory in use.
  // kTryAgain if it was interrupted; other errors are those of ComputeDevice::Load.
  Result<std::shared_ptr<const LoadedModel>> Get(const ConfigureCompute& request,
                                                 const ManagerConnection& manager);

  // Frees the model if nobody has used it for a while. To be called at least every second or so.
  void Turn(TimePoint now);

 private:
  ComputeDevice& device_;
  const std::atomic<bool>& interrupted_;
  std::shared_ptr<const LoadedModel> loaded_;  // null: none
  std::string source_;  // what it was loaded from, to compare with the next request's
  TimePoint used_last_{};
};

}  // namespace lamina
