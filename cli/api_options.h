// Options of the HTTP API that `lamina serve` and `lamina front` share.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "api/http_server.h"
#include "base/status.h"
#include "manager/cluster_config.h"

namespace lamina {

struct ApiOptions {
  // How the model writes calls of tools, and whether it reasons before it answers: "auto": as its
  // chat template shows; "none"; else one of the words that --help names.
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::string ssl_certfile, ssl_keyfile;  // as ServerOptions
  std::string allowed_origins;            // for ParseOrigins of api/cors.h; "": none
  bool log_requests = false;
  std::string log_level;  // "": that of the environment

  void AddTo(CLI::App& command);

  // Takes what the cluster YAML says where no option does.
  void Complete(const ClusterConfig& config);

  // Of the server's URL: "http://" or "https://".
  std::string scheme() const { return ssl_certfile.empty() ? "http://" : "https://"; }

  // Sets what the server and the model have of them, and the level of this process's log and of
  // daemons that it starts. REQUIRES: the model's chat template is set, if it has one.
  Status ApplyTo(ServerOptions& server, ServedModel& model) const;
};

}  // namespace lamina
