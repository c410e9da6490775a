// An EngineService on a thread: lets fronts reach the engine of this process.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "base/inbox.h"
#include "base/status.h"
#include "manager/cluster_config.h"
#include "manager/engine.h"
#include "manager/engine_service.h"
#include "transport/control_port.h"

namespace lamina {

class EngineServer {
 public:
  // Listens where `config` says (ClusterConfig::FrontAddress). Fronts wait until it serves an
  // engine. Errors are those of the secret, of the TLS files and of the address.
  static Result<std::unique_ptr<EngineServer>> Open(const ClusterConfig& config);
  // Fronts lose the connection, and ask the next engine for their requests.
  ~EngineServer();

  // Borrows the engine. REQUIRES: called once.
  void Serve(Engine& engine, const EngineServiceOptions& options);

  const std::string& address() const { return port_->address(); }

 private:
  explicit EngineServer(std::unique_ptr<ControlPort> port) : port_(std::move(port)) {}
  void Loop(Engine& engine, const EngineServiceOptions& options);

  const std::unique_ptr<ControlPort> port_;
  WakeFd stop_;  // signalled: the thread is to end
  std::thread thread_;
};

}  // namespace lamina
