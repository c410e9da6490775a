// Shows a run of `lamina bench serve`, in files and for people.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "bench/serve/serve_figures.h"
#include "bench/serve/serving_cost.h"

#include "plan/workload/workload.h"

namespace lamina {

// Everything that a report shows.
struct ServeReport {
  std::string date;  // "20260131-235959", local time
  // tokenizer: "" if there was none.
  std::string url, backend, model, tokenizer;
  std::string command;  // the command line
  WorkloadOptions workload;
  // See RequestTrace.
  std::string source, counted_by;
  int64_t num_left_out = 0;
  int64_t max_concurrency = 0;
  ServiceLevel level;
  std::optional<Prices> prices;
  LoadResult load;
  ServeFigures figures;
};

// One object with the names of `vllm bench serve`, with "cost" (null without prices), and with what
// else is known of the run.
nlohmann::ordered_json ToJson(const ServeReport& report);

// A line of JSON for each request. Times are in milliseconds, since the start or since the request
// was sent.
std::string RequestLines(const LoadResult& load);

// A table for terminals, and remarks.
std::string ToText(const ServeReport& report);

// An SVG document: TTFT and time per token over the run, and their distributions.
std::string DrawServe(const ServeReport& report);

}  // namespace lamina
