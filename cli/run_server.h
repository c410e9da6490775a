// `lamina serve`: the manager process. Puts the pieces together: nodes (its own children, or those
// of a cluster YAML), engine, HTTP server.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/api_options.h"
#include "manager/cluster_config.h"

namespace lamina {

struct ServeOptions {
  // Nodes that run already; else a local cluster is started.
  std::optional<std::string> cluster_file;
  // Checkpoint folder; with cluster_file: "" takes the YAML's.
  std::string model;

  // The local cluster.
  int num_compute_nodes = 0;  // 0: one, or as many as the model is shared by
  int num_memory_nodes = 2;
  std::string memory;  // of each memory node; "": what follows says it
  // Nodes share this part of the machine's free memory, less the weights. 0: 0.9, but no more than
  // requests can use; on a GPU 256 MiB each.
  double memory_utilization = 0;
  int compute_threads = 0;  // 0: all cores
  int memory_threads = 1;
  std::string device = "cpu";  // cpu or cuda:N
  std::string memory_device;   // of memory nodes; "": the same

  // "", 0 or nullopt: the YAML's, else the default of manager/cluster_config.h.
  std::string served_name;
  std::optional<TransportKind> transport;
  std::optional<DTypeSetting> kv_dtype, wire_dtype;
  std::optional<LoadFormat> load_format;
  std::optional<PipelineMode> pipeline;
  std::optional<QueueMode> queue;
  std::optional<HopelessMode> on_hopeless;
  std::string slo_ttft, slo_tpot;  // such as 50ms
  bool no_prefix_caching = false;
  int max_num_seqs = 0, max_num_batched_tokens = 0, max_num_queued_reqs = 0;
  int kv_head_parallel = 0, num_batches = 0;
  int pipeline_parallel_size = 0, tensor_parallel_size = 0;
  std::string max_model_len, spread_tokens;  // such as 32k

  std::string host;          // "": loopback, or with cluster_file the controller's address
  int port = -1;             // -1: 8000, or the YAML's
  int drain_timeout_s = -1;  // -1: 10, or the YAML's
  // What clients must send, or the file that it is in.
  std::string api_key, api_key_file;
  ApiOptions api;

  std::string trace_out;  // what the nodes do is written to this file; "": it is not

  std::string prompt;        // answered once serving; "" for none
  int64_t max_tokens = 160;  // of that answer
  bool once = false;         // stop after the answer
};

// Serves until SIGINT or SIGTERM (or after the prompt's answer with `once`), or until too few nodes
// were there for start_timeout: kPeerLost. Daemons of a local cluster that end are started again.
// Progress and the answer go to stdout, errors come back.
//
// The signals end a start-up at once; later, new requests are refused and those under way may end
// within the drain timeout. That some could not is an error. A second SIGINT ends the process.
Status Serve(const ServeOptions& options);

}  // namespace lamina
