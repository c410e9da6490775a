// Sends requests to an OpenAI-compatible server at their times, and measures what comes back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "base/clock.h"
#include "base/status.h"

namespace lamina {

// One request to be sent.
struct LoadRequest {
  double arrival_seconds = 0;  // since the start
  std::string body;            // JSON
  // Tokens as the workload counts them; the server may count otherwise.
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
};

// The error_kind of requests that were in flight when a run was ended early.
inline constexpr char kInterrupted[] = "interrupted";

// What happened to one request. Times are in seconds.
struct RequestRecord {
  // Since the start: when it was due, and when it was sent, which is later if no slot was free or
  // the generator could not keep up.
  double arrival = 0;
  double sent = 0;
  double ttft = 0;          // from sending to the first token
  double e2el = 0;          // from sending to the last token
  std::vector<double> itl;  // from each event of the stream to the next
  // Tokens as the server counts them; if it does not say, as the workload does.
  int64_t input_tokens = 0;
  // Tokens as the server counts them; if it does not say, events of the stream that have text.
  int64_t output_tokens = 0;
  bool counted_by_server = true;  // output_tokens
  int64_t wanted_tokens = 0;      // of output, in the workload
  // "" if an answer came; else StreamEnd::error_kind or kInterrupted, and the times are 0.
  std::string error_kind;
  std::string error;

  bool ok() const { return error_kind.empty(); }
  // It is neither a success nor a failure: nobody knows what would have come.
  bool interrupted() const { return error_kind == kInterrupted; }
  // (e2el - ttft) / (output_tokens - 1), as `vllm bench serve` has it; 0 for one token.
  double tpot() const {
    return output_tokens > 1 ? (e2el - ttft) / static_cast<double>(output_tokens - 1) : 0;
  }
};

// How far a run is.
struct LoadProgress {
  double seconds = 0;
  size_t total = 0, completed = 0, failed = 0, in_flight = 0;
  int64_t output_tokens = 0;
};

// How requests are sent, and what ends a run early.
struct LoadOptions {
  std::string path = "/v1/completions";
  std::string api_key;
  // With https: a file of CA certificates in PEM form that are trusted instead of the system's.
  std::string ca_file;
  // At most so many requests are in flight; others wait in their order. 0: any number.
  int64_t max_concurrency = 0;
  // How long one request may take, from sending it to the end of its answer.
  Clock::duration timeout = std::chrono::minutes(10);
  // Called every 200 ms and at the end. May be empty.
  std::function<void(const LoadProgress&)> on_progress;
  // SIGINT or SIGTERM ends the run early: nothing more is sent, and answers in flight are not
  // awaited. A second signal does what it did before the run.
  bool ends_at_signals = false;
  // Called every 200 ms; true ends the run early, as a signal does. May be empty.
  std::function<bool()> ends_when;
};

// What a run measured.
struct LoadResult {
  // One for each request, in their order; if the run ended early, those that were sent.
  std::vector<RequestRecord> records;
  bool ended_early = false;  // by a signal or ends_when
  size_t num_unsent = 0;     // requests, if the run ended early
  // From the start to the end of the last answer, or to the early end.
  double duration_seconds = 0;
  // CPU time of the generator's thread, as a share of one core.
  double cpu_share = 0;
  // How late requests were sent for which a slot was free when they were due.
  double worst_lateness_seconds = 0;
  double p99_lateness_seconds = 0;
  int num_connections = 0;
};

// Raises the limit of open files to the most that the system allows: each connection is one.
void AllowManyOpenFiles();

// Blocks until every request has been answered or has failed, or the run ends early. Everything
// runs on the calling thread. Whatever happens to a request is in its record. kPeerLost if the host
// is unknown, kInvalidArgument if the file of CA certificates cannot be used.
Result<LoadResult> RunLoad(const HttpUrl& url, const std::vector<LoadRequest>& requests,
                           const LoadOptions& options);

}  // namespace lamina
