// What a simulation showed, in the field names of `vllm bench serve`, with how busy the pools were
// and what limited them.
#pragma once

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

#include "plan/simulate/simulation.h"

namespace lamina {

// What a user could have more of to serve faster, or what kept requests from being served.
struct Limit {
  // "compute nodes" | "memory nodes" | "network" | "KV cache" | "max_num_seqs" | "requests" |
  // "refusals" | "latency" | "failure".
  std::string resource;
  std::string why;  // a clause, for people
};
Limit FindLimit(const ClusterModel& cluster, const SimulationResult& result);

// duration, completed, failed, total_input_tokens, total_output_tokens, request_throughput,
// output_throughput, total_token_throughput, and mean_, median_, std_, p50_, p90_, p95_ and p99_ of
// ttft_ms, tpot_ms, itl_ms and e2el_ms, over the requests that were answered in full.
nlohmann::ordered_json ToServeJson(const SimulationResult& result);

// ToServeJson with `cluster`, `utilisation`, `limit`, `kv`, counts of requests by outcome and, over
// time, `timeline`.
nlohmann::ordered_json ToJson(const ClusterModel& cluster, const SimulationResult& result);

// A table for people.
std::string ToText(const ClusterModel& cluster, const SimulationResult& result);

// One line of JSON for each request, in the workload's order. Times are in seconds.
void WriteRequests(const SimulationResult& result, std::ostream& out);

// A picture: how busy the pools were, how full the KV cache was, and how many sequences ran and
// waited, over time.
std::string ToSvg(const ClusterModel& cluster, const SimulationResult& result);

}  // namespace lamina
