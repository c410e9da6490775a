// The cluster YAML: which nodes there are, what they serve and with which limits. Strict: an
// unknown key is an error with its line.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/tls_files.h"
#include "base/units.h"

namespace lamina {

enum class NodeRole { kCompute, kMemory };

struct NodeConfig {
  std::string name;  // unique, [a-z0-9-]+
  NodeRole role = NodeRole::kMemory;
  std::string host = "127.0.0.1";  // as of CanonicalHost (base/net_address.h)
  int port = 0;                    // control port of its daemon
  std::string device = "cpu";      // see cost/node_device.h
  int threads = 0;                 // 0: all cores of the host, or of `cpus`
  // Such as "0-3,8": its daemon runs on these cores, each thread of its kernels on one; "": on any.
  std::string cpus = "";
  // Memory nodes: for the KV cache (required); human sizes: 512MiB, 4GiB.
  int64_t memory_bytes = 0;
  // Memory nodes on a GPU: so much of it lies in the host's memory, pinned, and is read from there.
  int64_t host_memory_bytes = 0;
  double price_per_hour = 0;  // for tokens per dollar; 0: unknown
};

// What `kv_dtype` may be, in files and on command lines. auto: the model's own. fp8: E4M3 without
// scales; what exceeds 448 becomes 448.
const std::vector<std::string>& KvDTypeChoices();

struct ClusterConfig {
  int version = 1;

  // cluster:
  std::string name = "lamina";
  std::string controller_host = "127.0.0.1";  // where the manager and its HTTP server run
  int http_port = 8000;
  // What proves to one node that another belongs to the cluster; the same path on every host; "":
  // no secret.
  std::string secret_file;
  // The same paths on every host, with a certificate of its own on each; empty: no TLS.
  TlsFiles tls;

  // See cost/device_catalog.h, for modelled devices; the same path on every host; "": no node has
  // one.
  std::string device_catalog;

  // defaults: (how daemons on other hosts are started)
  std::string ssh = "ssh";  // command and options
  std::string workdir;      // on every host; "": the current folder
  std::string log_dir;      // "": a folder of the cluster's name below the user's state folder
  std::vector<std::pair<std::string, std::string>> env;

  // Any number of either role, at least one compute node; several need memory nodes.
  std::vector<NodeConfig> nodes;

  // model:
  // On the compute node's host; relative to the YAML's folder if not absolute.
  std::string model_path;
  std::string served_name;           // "": last part of the path
  std::string load_format = "auto";  // auto | safetensors | dummy
  // Auto (the model's dtype) | float32 | bfloat16 | float16 | fp8.
  std::string kv_dtype = "auto";

  // transport:
  // Auto (the best one per pair of nodes) | verbs | ucx | shm | tcp.
  std::string transport = "auto";
  // If the one that was named cannot be had: take what "auto" would; else it is an error.
  bool transport_fallback = false;
  // Of q, k, v and outputs on their way: auto (on for tcp) | on | off.
  std::string payload_checksum = "auto";

  // Between GPUs: device (kernels wait for messages themselves, where they can) | host | auto:
  // device on one host, unless both nodes' processes take turns on one GPU.
  std::string polling = "auto";

  // attention: (how memory nodes share it; without both, each sequence is on one node)
  // So many memory nodes, neighbours in `nodes`, hold different kv_heads of the same tokens.
  int kv_head_parallel = 1;
  // A sequence of more tokens is spread over several nodes (or such groups) and may outgrow one; 0:
  // none is.
  int64_t spread_tokens = 0;
  // Of q and outputs on their way: auto (float32; with modelled devices the model's) | float32 |
  // bfloat16 | float16. k and v travel as they are stored.
  std::string wire_dtype = "auto";
  // K and V of earlier requests stay, while there is room, for those that begin with the same
  // tokens.
  bool prefix_caching = true;

  // network: (a link that all nodes are taken to have, as they are on one machine; without both,
  // the transport's own time is all)
  Clock::duration modelled_latency{};  // from one node to another
  // GB = 10^9 bytes, of each node in each direction; 0: bytes take no time.
  double modelled_gb_per_s = 0;

  // pipeline:
  // How steps of several batches share the compute nodes while memory nodes attend for others:
  //   none        one batch per compute node
  //   fixed       each compute node runs every slice of its batches
  //   rotational  slice k of batch j runs on compute node (j + k) mod their number; the context
  //   migrates auto        at first none; then whichever of these, with up to num_batches, the
  //   times of slices and attention show to be fastest
  std::string pipeline = "auto";
  // In flight at a time; 0: n + 1 on n compute nodes or stages, with auto up to 2 n, with none
  // always n, or 1 with stages.
  int num_batches = 0;
  // Q leaves before k and v, and outputs as they are done: auto (with a modelled network) | on |
  // off.
  std::string overlap = "auto";

  // parallel: (for models that do not fit one compute node. The product of both is 1 or the number
  // of compute nodes, which stand in `nodes` stage by stage)
  int pipeline_parallel_size = 1;  // stages: each runs a contiguous range of layers
  // Compute nodes of a stage, which share its attention heads and its MLPs.
  int tensor_parallel_size = 1;

  // limits:
  int max_num_seqs = 64;
  int max_num_batched_tokens = 512;
  int64_t max_model_len = 0;  // 0: the model's
  int max_num_queued_reqs = 1024;
  // Reaching nodes, at first or in an outage; loading weights may take longer.
  Clock::duration start_timeout = std::chrono::seconds(60);
  Clock::duration step_timeout = std::chrono::seconds(60);  // one step
  Clock::duration peer_timeout =
      // One wait for a peer inside a step; and heartbeat silence, if that is 4 s or more.
      std::chrono::seconds(10);
  // Requests under way when the manager is asked to stop.
  Clock::duration drain_timeout = std::chrono::seconds(10);

  // Some node computes nothing.
  bool has_modelled() const;
  // No compute node holds all of it.
  bool shares_model() const { return pipeline_parallel_size > 1 || tensor_parallel_size > 1; }
  bool models_network() const {
    return modelled_latency > Clock::duration::zero() || modelled_gb_per_s > 0;
  }

  // "127.0.0.1:7101", as it stands in commands and messages; an IPv6 host gets brackets.
  static std::string Address(const NodeConfig& node);

  // kNotFound: no such file. kInvalidArgument: "FILE:LINE: what is wrong, what was expected".
  // ${ENV} is expanded in strings. Load also holds the nodes against the catalog of modelled
  // devices: kNotFound names the node, the catalog and what it has.
  static Result<ClusterConfig> Load(const std::string& path);
  static Result<ClusterConfig> Parse(const std::string& yaml, const std::string& path);
};

}  // namespace lamina
