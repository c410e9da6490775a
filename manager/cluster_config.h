// The cluster's YAML file: which nodes there are, what they serve and within which limits. It is
// read strictly: an unknown key or a value out of range is an error that names its line. Commented
// examples are in configs/.
//
//   LAMINA_ASSIGN_OR_RETURN(ClusterConfig config, ClusterConfig::Load("configs/local.yaml"));
//   LAMINA_RETURN_IF_ERROR(ResolveConfig(config, model));  // what the file leaves to the model
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/node_role.h"
#include "base/slo.h"
#include "base/status.h"
#include "base/tls_files.h"
#include "base/units.h"
#include "cost/step_profile.h"
#include "manager/cluster_settings.h"
#include "manager/offload_bus.h"
#include "model/model_config.h"
#include "splitter/offload_options.h"

namespace lamina {

// One entry of `nodes`. Value type.
struct NodeConfig {
  // Unique in the cluster: up to 63 of the characters a-z, 0-9 and -, not beginning with -. Not
  // "manager".
  std::string name;
  NodeRole role = NodeRole::kMemory;
  // In the form that CanonicalHost (base/net_address.h) gives it.
  std::string host = "127.0.0.1";
  // The control port, where the node's daemon listens.
  int port = 0;
  // What the node computes on: cpu, cuda:N or modelled:NAME (cost/node_device.h).
  std::string device = "cpu";
  // Threads of its kernels. 0: one for each core of `cpus`, or of the host if that is empty.
  int threads = 0;
  // The cores that the daemon may run on, such as "0-3,8"; each thread of its kernels gets one of
  // them to itself. Empty: any core.
  std::string cpus = "";
  // What the KV cache may take, which the file must say of memory nodes in a size such as 512MiB or
  // 4GiB; and of the compute node where there are no memory nodes, as it keeps the KV cache then. 0
  // for other compute nodes.
  int64_t memory_bytes = 0;
  // Memory nodes on a GPU: the part of memory_bytes that lies pinned in the host's memory, where
  // the GPU reads it.
  int64_t host_memory_bytes = 0;
  // Of compute nodes, whose weights lie on their disk in part, or, with a modelled device, in their
  // host's memory. Of memory nodes, whose layers' K and V do.
  OffloadOptions offload = {};
  // Of a compute node that keeps the KV cache itself: which layers' K and V do.
  OffloadOptions kv_offload = {};
  // For figures in tokens per dollar. 0: unknown.
  double price_per_hour = 0;
  // With offload.is_auto: the file of the step profile (cost/step_profile.h) by which the interval
  // is chosen. Parse makes it absolute, as model_path.
  std::string offload_record = {};
  // Which node this is in views (splitter/topology.h), greater than those of the nodes before it.
  // No key of the file, whose nodes have 0 here: their places in it, counted from 1, are their ids.
  NodeId id = {};
};

// The whole file. The fields stand in the file's order, under the names of its sections. Load and
// Parse leave "auto" and 0 as they stand; ResolveConfig (manager/resolve_config.h) replaces those
// that depend on the model or on the number of nodes. Value type.
struct ClusterConfig {
  // version: of the format; 1 is the only one.
  int version = 1;

  // cluster:
  std::string name = "lamina";
  // The host of the manager and its HTTP server.
  std::string controller_host = "127.0.0.1";
  int http_port = 8000;
  // The port on controller_host where the manager takes fronts (remote_engine.h). 0: it takes none.
  int front_port = 0;
  // The file with the secret by which nodes prove to each other that they belong to the cluster. It
  // has the same path on every host. Empty: there is no secret.
  std::string secret_file;
  // The files for TLS. They have the same paths on every host, and each host has a certificate of
  // its own. Empty: no TLS.
  TlsFiles tls;
  // The certificate and key of the HTTP server, which speaks HTTPS then, and the CA that `lamina
  // cluster` trusts when it asks the server; without a CA, those of the system. Empty: HTTP.
  TlsFiles https;
  // The catalog of modelled devices (cost/device_catalog.h), at the same path on every host. Empty:
  // no node has a modelled device.
  std::string device_catalog;

  // defaults: how daemons are started
  // The command and options that run a script on another host.
  std::string ssh = "ssh";
  // The folder that daemons run in, on every host. Empty: the one in which they happen to start.
  std::string workdir;
  // The folder of the daemons' logs. Empty: lamina/NAME/logs below the user's state folder, with
  // the cluster's name.
  std::string log_dir;
  // Environment variables of the daemons.
  std::vector<std::pair<std::string, std::string>> env;

  // nodes: at least one compute node. More than one need at least one memory node.
  std::vector<NodeConfig> nodes;
  // Those of them with `standby: true`, which are not in `nodes`: compute nodes that wait for the
  // place of one that is lost (compute_places.h).
  std::vector<NodeConfig> standbys;

  // model:
  // The model's folder or GGUF file on the compute nodes' hosts. Parse makes it absolute: a
  // relative path starts at the YAML's folder, and where nothing is there it may be the name of a
  // model in the cache of Hugging Face's tools.
  std::string model_path;
  // Of a name that is not in the cache: what to type. Then `model_path` is the name as it stands.
  std::string missing_model;
  // The model's name in the API. Parse replaces an empty one by the last part of the path.
  std::string served_name;
  LoadFormat load_format = LoadFormat::kAuto;
  // The dtype in which K and V are stored, one of kKvDTypeChoices. auto: the model's.
  DTypeSetting kv_dtype;

  // transport:
  TransportKind transport = TransportKind::kAuto;
  // What happens if the fabric that `transport` names cannot be had: true takes what auto would
  // take, false is an error.
  bool transport_fallback = false;
  // Checksums of q, k, v and outputs in messages. auto: on for tcp.
  Switch payload_checksum = Switch::kAuto;
  PollingMode polling = PollingMode::kAuto;

  // attention: how memory nodes share it. Without the first two, each sequence is on one node.
  // The size of a group of memory nodes, neighbours in `nodes`, that hold different kv_heads of the
  // same tokens. Divides the number of memory nodes.
  int kv_head_parallel = 1;
  // A sequence of more tokens than this is spread over several nodes (or groups of them), so it may
  // outgrow one. 0: no sequence is.
  int64_t spread_tokens = 0;
  // The dtype of q and outputs in messages, one of kWireDTypeChoices. auto: float32; with modelled
  // devices the model's. k and v travel in the dtype in which they are stored.
  DTypeSetting wire_dtype;
  // Whether K and V of earlier requests stay, while there is room, for requests that begin with the
  // same tokens.
  bool prefix_caching = true;

  // network: a link that all nodes are taken to have, while they are on one machine. With neither,
  // messages take the transport's own time only.
  // The time that a message takes from one node to another besides that of its bytes.
  Clock::duration modelled_latency{};
  // The bandwidth of each node in each direction, in 10^9 bytes per second. 0: bytes take no time.
  double modelled_gb_per_s = 0;

  // pipeline:
  PipelineMode pipeline = PipelineMode::kAuto;
  // Batches in flight at a time; with auto the most of them. 0 stands for, on n compute nodes that
  // hold the whole model: n with none, n + 1 with fixed and rotational, 2 n with auto; on n stages:
  // 1 with none, n + 1 with fixed, 2 n with auto.
  int num_batches = 0;
  // Whether q leaves before k and v, and outputs as soon as they are computed. auto: with a
  // modelled network.
  Switch overlap = Switch::kAuto;

  // parallel: for models that do not fit one compute node. The product of both is 1 or the number
  // of compute nodes, which stand in `nodes` stage by stage.
  // The number of stages. Each runs a contiguous range of layers.
  int pipeline_parallel_size = 1;
  // The number of compute nodes in a stage, which share its attention heads and its MLPs.
  int tensor_parallel_size = 1;

  // scheduling:
  QueueMode queue = QueueMode::kFifo;
  // With kDrop they are answered with 503.
  HopelessMode on_hopeless = HopelessMode::kServe;

  // slo: of requests that name no objectives.
  SloRule slo;

  // limits:
  // Sequences that run at a time.
  int max_num_seqs = 64;
  // Tokens of a step. At least max_num_seqs.
  int max_num_batched_tokens = 512;
  // Tokens of a sequence, prompt included. 0: the model's number of positions.
  int64_t max_model_len = 0;
  // Requests that wait to be started; more are refused.
  int max_num_queued_reqs = 1024;
  // How often a request starts again because the KV of it was lost; then it fails.
  int max_rebuilds = 3;
  // How long it may take to reach the nodes, at the start and in an outage. Loading weights may
  // take longer.
  Clock::duration start_timeout = std::chrono::seconds(60);
  // How long a step may take.
  Clock::duration step_timeout = std::chrono::seconds(60);
  // How long a node waits for a peer inside a step. Also the silence after which the manager takes
  // a node for lost, but that is never less than four heartbeats.
  Clock::duration peer_timeout = std::chrono::seconds(10);
  // How long a memory node may keep a compute node waiting before it is suspended. At least
  // peer_timeout: it never is.
  Clock::duration suspect_after = std::chrono::seconds(1);
  // How long requests under way may go on when the manager is asked to stop.
  Clock::duration drain_timeout = std::chrono::seconds(10);

  // What offload_record names. ResolveConfig loads it; null: no node has one.
  std::shared_ptr<const StepProfile> step_profile;
  // The bus of all compute nodes, whose intervals are chosen with regard to each other.
  // ResolveConfig sets it where it applies.
  std::optional<OffloadBus> offload_bus;

  // buses: that several nodes' offload names, with the modelled rate of each in 10^9 bytes per
  // second.
  std::map<std::string, double> buses;
  // Whether intervals that are chosen take the other nodes on their bus into account.
  bool coordinate_buses = true;

  // All that have a daemon: the nodes, then the standbys.
  std::vector<NodeConfig> daemons() const;
  // The id of nodes[place] in views.
  NodeId IdOf(size_t place) const;
  // True if a node has a modelled device, so it computes nothing.
  bool has_modelled() const;
  // True if compute nodes are stages or ranks, so none of them holds the whole model.
  bool shares_model() const { return pipeline_parallel_size > 1 || tensor_parallel_size > 1; }
  bool models_network() const {
    return modelled_latency > Clock::duration::zero() || modelled_gb_per_s > 0;
  }

  // Reads what is at `model_path`. kNotFound if it is not on this host, and else the errors of
  // ModelConfig::Load.
  Result<ModelConfig> LoadModel() const;

  // HOST:PORT as commands and messages show it: "127.0.0.1:7101". An IPv6 host gets brackets.
  static std::string Address(const NodeConfig& node);
  // Where the manager takes fronts. REQUIRES: front_port is not 0.
  std::string FrontAddress() const;

  // Parses the file and holds its nodes against the catalog of modelled devices. kNotFound if the
  // file, the catalog or a device in it does not exist. kInvalidArgument if the file cannot be
  // read, if Parse finds a mistake, if the catalog is malformed, or if a node has more memory than
  // its modelled device.
  static Result<ClusterConfig> Load(const std::string& path);

  // Parses the text of a file. `path` names it in messages, and relative paths in it start at its
  // folder. ${NAME} in strings is replaced by the environment variable. kInvalidArgument for every
  // mistake, as "FILE:LINE: what is wrong, what was expected". Reads no other file, and looks
  // whether the model is there.
  static Result<ClusterConfig> Parse(const std::string& yaml, const std::string& path);
};

}  // namespace lamina
