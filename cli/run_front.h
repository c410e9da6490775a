// `lamina front`: answers clients with the engine of another process, the manager. Clients whose
// manager is lost wait for the next one, and go on behind the tokens that they have.
#pragma once

#include <string>

#include "base/status.h"
#include "cli/api_options.h"

namespace lamina {

struct FrontOptions {
  std::string cluster_file;        // the manager's
  std::string model;               // checkpoint folder on this host; "": the YAML's
  std::string manager;             // HOST:PORT; "": the YAML's controller and front_port
  std::string host = "127.0.0.1";  // of the HTTP server
  int port = 8001;                 // 0: any free one
  int drain_timeout_s = -1;        // -1: the YAML's
  // What clients must send, or the file that it is in.
  std::string api_key, api_key_file;
  ApiOptions api;
};

// Serves until SIGINT or SIGTERM, as Serve (run_server.h) does. kTimeout if no manager takes
// requests within the YAML's start_timeout.
Status ServeFront(const FrontOptions& options);

}  // namespace lamina
