// What `lamina complete` and `lamina chat` share: where the server is, how tokens are chosen, and a
// streamed answer on stdout.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "base/status.h"

namespace lamina {

// Command line options of a request. What is absent is not sent: the server's and the model's
// defaults hold.
struct RequestOptions {
  std::string url = "http://127.0.0.1:8000";
  std::string ca_file;  // as HttpClientOptions
  std::string api_key, api_key_file;
  std::string model;
  std::optional<int> max_tokens;  // none: as long as the server lets it
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<int> top_k;
  std::optional<int64_t> seed;
  std::vector<std::string> stop;
  bool stats = false;

  void AddTo(CLI::App& command);
};

class ApiSession {
 public:
  // Asks the server which model it has if none is given. The error says how to start a server if
  // none answers.
  static Result<ApiSession> Open(const RequestOptions& options);

  // Sends `request` (prompt or messages) with the options, prints the text as it comes and returns
  // it. An error of the server is an error here.
  Result<std::string> Stream(const std::string& path, nlohmann::json request);

 private:
  ApiSession(RequestOptions options, HttpClient client)
      : options_(std::move(options)), client_(std::move(client)) {}

  RequestOptions options_;
  HttpClient client_;
};

}  // namespace lamina
