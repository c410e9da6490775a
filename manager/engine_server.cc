#include "manager/engine_server.h"

#include <poll.h>

#include <array>
#include <utility>

#include "base/clock.h"
#include "manager/control_options.h"
#include "transport/control_server.h"

namespace lamina {

Result<std::unique_ptr<EngineServer>> EngineServer::Open(const ClusterConfig& config) {
  LAMINA_ASSIGN_OR_RETURN(const ControlOptions options,
                          ControlOptionsOf(config, "manager of cluster " + config.name));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ControlPort> port,
                          OpenControlServer(config.FrontAddress(), options));
  return std::unique_ptr<EngineServer>(new EngineServer(std::move(port)));
}

EngineServer::~EngineServer() {
  stop_.Signal();
  if (thread_.joinable()) thread_.join();
}

void EngineServer::Serve(Engine& engine, const EngineServiceOptions& options) {
  thread_ = std::thread([this, &engine, options] { Loop(engine, options); });
}

void EngineServer::Loop(Engine& engine, const EngineServiceOptions& options) {
  EngineService service(options, engine, *port_);
  const auto [port_fd, told_fd] = service.fds();
  std::array<pollfd, 3> polls = {pollfd{port_fd, POLLIN, 0}, pollfd{told_fd, POLLIN, 0},
                                 pollfd{stop_.fd(), POLLIN, 0}};
  while ((polls[2].revents & POLLIN) == 0) {
    const TimePoint now = Clock::now();
    const Deadline next(service.Turn(now) ? now : service.next_turn());
    poll(polls.data(), polls.size(), next.RemainingMs());
  }
}

}  // namespace lamina
