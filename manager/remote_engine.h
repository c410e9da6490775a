// The engine of another process, the manager: RemoteRequests and their ManagerLink on a thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/inbox.h"
#include "base/mutex.h"
#include "manager/cluster_config.h"
#include "manager/engine.h"
#include "manager/manager_link.h"
#include "manager/remote_requests.h"

namespace lamina {

struct RemoteEngineOptions {
  RemoteRequestsOptions requests;
  ManagerLinkOptions link;

  // For the manager of `config`, which has its served_name. `who`: as the manager's log calls this
  // process. Errors are those of ControlOptionsOf.
  static Result<RemoteEngineOptions> Of(const ClusterConfig& config, int64_t vocab_size,
                                        const std::string& who);
};

class RemoteEngine final : public Engine {
 public:
  // Waits until a manager takes requests. kTimeout after give_up_after, kTryAgain if `interrupted`;
  // at once: why the manager refuses this front, or what is wrong with secret or certificates.
  static Result<std::unique_ptr<RemoteEngine>> Connect(const RemoteEngineOptions& options,
                                                       const std::function<bool()>& interrupted);
  ~RemoteEngine() override;

  Result<RequestId> Submit(GenerateRequest request, Sink sink) override;
  void Abort(RequestId request) override;
  void Stop(RequestId request, int index) override;
  EngineStatus status() override;
  int64_t max_model_len() const override { return facts_.max_model_len; }
  std::span<const TokenId> eos_tokens() const override { return facts_.eos_tokens; }

 private:
  explicit RemoteEngine(const RemoteEngineOptions& options);
  void Loop();

  WakeFd wake_;
  Mutex mutex_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  RemoteRequests requests_ GUARDED_BY(mutex_);
  ManagerLink link_ GUARDED_BY(mutex_);
  FrontOpened facts_;  // set before Connect returns
  std::thread thread_;
};

}  // namespace lamina
