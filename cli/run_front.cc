#include "cli/run_front.h"

#include <fmt/format.h>

#include <memory>

#include "base/net_address.h"
#include "cli/model_server.h"
#include "cli/serving_figures.h"
#include "hub/find_model.h"
#include "manager/api_key.h"
#include "manager/remote_engine.h"

namespace lamina {
namespace {

// Until the next look at whether to stop.
constexpr auto kStopLook = std::chrono::seconds(1);

Result<RemoteEngineOptions> EngineOptionsOf(const FrontOptions& options,
                                            const ClusterConfig& config, const ModelFiles& files) {
  LAMINA_ASSIGN_OR_RETURN(
      RemoteEngineOptions engine,
      RemoteEngineOptions::Of(config, files.model.vocab_size, "front of cluster " + config.name));
  engine.requests.observer = files.metrics.get();
  if (!options.manager.empty()) engine.link.manager = options.manager;
  return engine;
}

}  // namespace

Status ServeFront(const FrontOptions& options) {
  HandleStopSignals();
  LAMINA_ASSIGN_OR_RETURN(ClusterConfig config, ClusterConfig::Load(options.cluster_file));
  if (!options.model.empty()) {
    LAMINA_ASSIGN_OR_RETURN(config.model_path, FindModel(options.model));
    config.missing_model.clear();
  }
  if (options.manager.empty() && config.front_port == 0) {
    return InvalidArgument(options.cluster_file +
                           ": cluster.front_port is not set, so the manager takes no fronts: set "
                           "it to a free port of the controller");
  }
  if (options.drain_timeout_s >= 0)
    config.drain_timeout = std::chrono::seconds(options.drain_timeout_s);
  LAMINA_ASSIGN_OR_RETURN(const std::string api_key,
                          FindApiKey(options.api_key, options.api_key_file));
  LAMINA_ASSIGN_OR_RETURN(const ModelFiles files, ModelFiles::Load(config));
  LAMINA_ASSIGN_OR_RETURN(const RemoteEngineOptions engine_options,
                          EngineOptionsOf(options, config, files));
  const std::string host = CanonicalHost(options.host);
  ApiOptions api = options.api;
  api.Complete(config);
  std::unique_ptr<RemoteEngine> engine;
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<HttpServer> server,
                          StartHttp(config, files, {host, options.port, api_key, api}));
  Say("Waiting for the manager at " + engine_options.link.manager);
  LAMINA_ASSIGN_OR_RETURN(engine,
                          RemoteEngine::Connect(engine_options, [] { return IsStopRequested(); }));
  server->SetEngine(engine.get());
  Say(fmt::format("{} is served on {}{}/v1", config.served_name, api.scheme(),
                  JoinHostPort(host, server->port())));
  ServingFigures figures(*files.metrics, *engine);
  while (!IsStopRequested(Deadline::After(kStopLook))) figures.Look();
  Say("Stopping");
  return StopHttp(*server, engine->status(), config.drain_timeout);
}

}  // namespace lamina
