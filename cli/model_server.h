// What a process that answers clients has besides its engine: what text needs, the HTTP server, and
// how it is asked to stop. `lamina serve` and `lamina front` are such processes.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "api/http_server.h"
#include "api/metrics.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/api_options.h"
#include "manager/cluster_config.h"
#include "manager/engine.h"
#include "model/model_config.h"
#include "text/chat_template.h"
#include "text/infill.h"
#include "text/tokenizer.h"

namespace lamina {

// Of the model that `config` names. Goes after the HTTP server and the engine, which use it.
struct ModelFiles {
  ModelConfig model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::string no_chat_reason;     // why there is none
  std::string no_vectors_reason;  // why texts have no vectors; "": they have
  std::optional<InfillFormat> infill;
  std::unique_ptr<Metrics> metrics;

  // Resolves `config` for the model too.
  static Result<ModelFiles> Load(ClusterConfig& config);
};

struct HttpOptions {
  std::string host;
  int port = 0;         // 0: any free one
  std::string api_key;  // "": none is asked for
  ApiOptions api = {};
};

// A server that listens, and tells clients that the model is loading until it has an engine.
// Borrows the files.
Result<std::unique_ptr<HttpServer>> StartHttp(const ClusterConfig& config, const ModelFiles& files,
                                              const HttpOptions& options);

// Waits for the requests under way if somebody asked to stop. An error if they did not all end
// well, or if an outage had ended them before. `before`: how the engine was.
Status StopHttp(HttpServer& server, const EngineStatus& before, Clock::duration drain_timeout);

// SIGINT and SIGTERM ask the process to stop. A second SIGINT ends it.
void HandleStopSignals();
bool IsStopRequested();
// Waits for it until `deadline`.
bool IsStopRequested(Deadline deadline);

// Prints a line at once.
void Say(const std::string& line);

}  // namespace lamina
