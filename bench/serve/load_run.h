// Sends requests at their times and measures what comes back.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "base/clock.h"
#include "base/status.h"

namespace lamina {

struct LoadRequest {
  double arrival_seconds = 0;  // since the start
  std::string body;            // JSON
  int64_t input_tokens = 0;    // as the workload has them
  int64_t output_tokens = 0;
};

inline constexpr char kInterrupted[] = "interrupted";

// What happened to one request. Times in seconds.
struct RequestRecord {
  double arrival = 0;  // since the start: when it was due ...
  // ... and when it was sent: later if no slot was free or the generator could not keep up.
  double sent = 0;
  double ttft = 0;                // from sending to the first token
  double e2el = 0;                // from sending to the last token
  std::vector<double> itl;        // between one event of the stream and the next
  int64_t input_tokens = 0;       // as the server counts, else as the workload does
  int64_t output_tokens = 0;      // as the server counts, else events of the stream with text
  bool counted_by_server = true;  // output_tokens
  int64_t wanted_tokens = 0;      // of output
  // "": an answer came; else as StreamEnd::error_kind or kInterrupted, and the times are 0.
  std::string error_kind;
  std::string error;

  bool ok() const { return error_kind.empty(); }
  // Nobody knows what would have come.
  bool interrupted() const { return error_kind == kInterrupted; }
  // (e2el - ttft) / (output_tokens - 1), 0 for one token. As `vllm bench serve`.
  double tpot() const {
    return output_tokens > 1 ? (e2el - ttft) / static_cast<double>(output_tokens - 1) : 0;
  }
};

struct LoadProgress {
  double seconds = 0;
  size_t total = 0, completed = 0, failed = 0, in_flight = 0;
  int64_t output_tokens = 0;  // of completed requests
};

struct LoadOptions {
  std::string path = "/v1/completions";
  std::string api_key;
  // Requests in flight; more wait in their order; 0: any number.
  int64_t max_concurrency = 0;
  Clock::duration timeout = std::chrono::minutes(10);  // of one request, from sending to its end
  // Every 200 ms, and at the end; may be empty.
  std::function<void(const LoadProgress&)> on_progress;
  // SIGINT or SIGTERM ends the run early: nothing more is sent, nobody waits for what is under way.
  // A second one ends the process, as before and after the run.
  bool ends_at_signals = false;
  // Asked every 200 ms: true ends the run early, as a signal does; may be empty.
  std::function<bool()> ends_when;
};

struct LoadResult {
  // One for each request, in their order; of an early end those that were sent.
  std::vector<RequestRecord> records;
  bool ended_early = false;  // by a signal or ends_when
  size_t num_unsent = 0;     // requests, because of that
  // From the start to the end of the last answer, or to the early end.
  double duration_seconds = 0;
  double cpu_share = 0;  // of one core, that the generator took
  // Of sending, among requests that found a slot when they were due.
  double worst_lateness_seconds = 0;
  double p99_lateness_seconds = 0;
  int num_connections = 0;
};

// As many as the system lets this process have: a connection is one.
void AllowManyOpenFiles();

// Blocks until every request is answered or has failed, or a signal; one thread. kPeerLost: the
// host is unknown. Whatever happens to a request is in its record.
Result<LoadResult> RunLoad(const HttpUrl& url, const std::vector<LoadRequest>& requests,
                           const LoadOptions& options);

}  // namespace lamina
