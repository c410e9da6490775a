#include "cli/run_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>

#include "api/http_client.h"
#include "api/http_server.h"
#include "base/host_memory.h"
#include "base/net_address.h"
#include "base/random_id.h"
#include "cli/machine_memory.h"
#include "cli/model_server.h"
#include "cli/serving_figures.h"
#include "cli/start_screen.h"
#include "cost/node_device.h"
#include "hub/find_model.h"
#include "manager/api_key.h"
#include "manager/cluster_executor.h"
#include "manager/engine_server.h"
#include "manager/local_cluster.h"
#include "manager/resolve_config.h"
#include "manager/serving_engine.h"

namespace lamina {
namespace {

// At the processes of a local cluster, and at whether there is any hope.
constexpr auto kLookInterval = milliseconds(200);

// Everything that a manager owns; members are destroyed from last to first.
struct Manager {
  ClusterConfig config;
  ModelFiles files;
  std::unique_ptr<LocalCluster> local;
  std::unique_ptr<TraceFile> trace;  // null: none is written
  std::unique_ptr<ServingEngine> engine;
  std::unique_ptr<EngineServer> fronts;  // null: none are taken
  uint64_t id = 0;                       // 0: nobody would ask the next manager for KV
  std::unique_ptr<HttpServer> server;    // stopped before the engine goes
  std::string api_key;                   // "": none is asked for
  ApiOptions api;                        // completed
};

void Override(std::string& value, const std::string& option) {
  if (!option.empty()) value = option;
}

void Override(int& value, int option) {
  if (option != 0) value = option;
}

template <typename Setting>
void Override(Setting& value, const std::optional<Setting>& option) {
  if (option) value = *option;
}

Status ApplyOptions(const ServeOptions& options, ClusterConfig& config) {
  if (!options.model.empty()) {
    LAMINA_ASSIGN_OR_RETURN(config.model_path, FindModel(options.model));
    config.missing_model.clear();
  }
  Override(config.transport, options.transport);
  Override(config.kv_dtype, options.kv_dtype);
  Override(config.wire_dtype, options.wire_dtype);
  Override(config.load_format, options.load_format);
  Override(config.served_name, options.served_name);
  Override(config.max_num_seqs, options.max_num_seqs);
  Override(config.max_num_batched_tokens, options.max_num_batched_tokens);
  Override(config.max_num_queued_reqs, options.max_num_queued_reqs);
  if (options.port >= 0) config.http_port = options.port;
  if (options.drain_timeout_s >= 0)
    config.drain_timeout = std::chrono::seconds(options.drain_timeout_s);
  if (!options.max_model_len.empty()) {
    const Result<int64_t> length = ParseSize(options.max_model_len);
    if (!length.ok()) return length.status().WithContext("--max-model-len");
    config.max_model_len = *length;
  }
  Override(config.kv_head_parallel, options.kv_head_parallel);
  if (options.no_prefix_caching) config.prefix_caching = false;
  Override(config.pipeline, options.pipeline);
  Override(config.queue, options.queue);
  Override(config.on_hopeless, options.on_hopeless);
  for (const auto& [name, text, objective] :
       {std::tuple("--slo-ttft", &options.slo_ttft, &config.slo.ttft),
        std::tuple("--slo-tpot", &options.slo_tpot, &config.slo.tpot)}) {
    if (text->empty()) continue;
    const Result<Clock::duration> time = ParseDuration(*text);
    if (!time.ok()) return time.status().WithContext(name);
    if (*time > kLongestObjective) return InvalidArgument(std::string(name) + ": at most 10m");
    *objective = *time;
  }
  Override(config.num_batches, options.num_batches);
  Override(config.pipeline_parallel_size, options.pipeline_parallel_size);
  Override(config.tensor_parallel_size, options.tensor_parallel_size);
  if (!options.spread_tokens.empty()) {
    const Result<int64_t> length = ParseSize(options.spread_tokens);
    if (!length.ok()) return length.status().WithContext("--spread-tokens");
    config.spread_tokens = *length;
  }
  config.max_num_batched_tokens = std::max(config.max_num_batched_tokens, config.max_num_seqs);
  return OkStatus();
}

std::string HttpHost(const ServeOptions& options, const Manager& manager) {
  if (!options.host.empty()) return CanonicalHost(options.host);
  return options.cluster_file ? manager.config.controller_host : "127.0.0.1";
}

// Of each node with KV cache: --memory, or what --memory-utilization makes of this machine.
// `config` has all but the nodes.
Result<int64_t> KvMemory(const ServeOptions& options, const ClusterConfig& config,
                         const ModelConfig& model, const ModelFacts& facts,
                         const LocalClusterOptions& local) {
  const bool has_share = options.memory_utilization > 0;
  if (!options.memory.empty() && has_share)
    return InvalidArgument("--memory and --memory-utilization say different things; name one");
  if (!options.memory.empty()) return ParseSize(options.memory);
  if (IsGpuName(local.num_memory_nodes > 0 ? local.memory_device : local.device)) {
    if (!has_share) return local.memory_bytes;
    return InvalidArgument(
        "--memory-utilization is of the host's memory; name --memory for a KV cache on a GPU");
  }
  MachineShare share;
  share.available_bytes = AvailableHostBytes();
  share.utilization = has_share ? options.memory_utilization : 0.9;
  const int num_shares = config.pipeline_parallel_size * config.tensor_parallel_size;
  if (!IsGpuName(local.device))
    share.weight_bytes = facts.weight_bytes * local.num_compute_nodes / num_shares;
  share.num_kv_nodes = std::max(local.num_memory_nodes, 1);
  LAMINA_ASSIGN_OR_RETURN(const int64_t bytes, KvBytesOfEachNode(share));
  if (has_share) return bytes;
  KvUse use;
  use.bytes_per_token = KvBytesPerToken(model, config.kv_dtype);
  use.max_num_seqs = config.max_num_seqs;
  use.max_model_len = config.max_model_len > 0 ? config.max_model_len : model.max_positions;
  use.num_kv_nodes = share.num_kv_nodes;
  use.kv_head_parallel = config.kv_head_parallel;
  return std::min(bytes, UsefulKvBytes(use));
}

// What the local cluster will be. `config` has all but the nodes.
Result<std::vector<NodeConfig>> PlanLocalCluster(const ServeOptions& options,
                                                 const ClusterConfig& config,
                                                 const ModelConfig& model,
                                                 const ModelFacts& facts) {
  LocalClusterOptions local;
  const int num_shares = config.pipeline_parallel_size * config.tensor_parallel_size;
  local.num_compute_nodes = options.num_compute_nodes > 0 ? options.num_compute_nodes : num_shares;
  local.num_memory_nodes = options.num_memory_nodes;
  if (local.num_compute_nodes > 1 && local.num_memory_nodes == 0)
    return InvalidArgument("several compute nodes need memory nodes; --memory-nodes is 0");
  local.compute_threads = options.compute_threads;
  local.memory_threads = options.memory_threads;
  local.device = options.device;
  local.memory_device = options.memory_device.empty() ? options.device : options.memory_device;
  LAMINA_ASSIGN_OR_RETURN(local.memory_bytes, KvMemory(options, config, model, facts, local));
  return LocalNodes(local);
}

// Starts the nodes of `config`, keeping the choices that it holds.
Status StartLocalCluster(Manager& manager) {
  LAMINA_ASSIGN_OR_RETURN(
      manager.local, LocalCluster::CreateFor(manager.config, [] { return IsStopRequested(); }));
  const std::vector<NodeConfig>& nodes = manager.config.nodes;
  const auto compute = std::ranges::count(nodes, NodeRole::kCompute, &NodeConfig::role);
  Say(fmt::format("Started {} compute node{} and {} memory nodes; logs in {}", compute,
                  compute == 1 ? "" : "s", std::ssize(nodes) - compute, manager.local->log_dir()));
  return OkStatus();
}

Status StartEngine(Manager& manager) {
  LAMINA_ASSIGN_OR_RETURN(
      std::unique_ptr<ClusterExecutor> executor,
      ClusterExecutor::Connect(
          manager.config, manager.files.model, Say, [] { return IsStopRequested(); }, manager.id));
  const auto record = [trace = manager.trace.get()](ClusterExecutor& nodes) {
    if (trace != nullptr) nodes.RecordTrace(*trace);
  };
  record(*executor);
  ServingEngineOptions options = ServingEngineOptions::Of(manager.config, manager.files.model);
  options.reconnect = ReconnectTo(manager.config, manager.files.model,
                                  {.progress = Say, .manager_id = manager.id}, record);
  options.look = LookAmong(manager.config, manager.files.model);
  options.observer = manager.files.metrics.get();
  manager.engine = std::make_unique<ServingEngine>(options, std::move(executor));
  manager.server->SetEngine(manager.engine.get());
  if (manager.fronts != nullptr) {
    manager.fronts->Serve(*manager.engine, {.model = manager.config.served_name,
                                            .vocab_size = manager.files.model.vocab_size,
                                            .manager_id = manager.id});
  }
  return OkStatus();
}

// An error: nothing will be served any more. Somebody above, such as a supervisor, has to act then.
Status ServeUntilStopped(Manager& manager) {
  ServingFigures figures(*manager.files.metrics, *manager.engine);
  while (!IsStopRequested(Deadline::After(kLookInterval))) {
    LAMINA_RETURN_IF_ERROR(manager.engine->given_up());
    if (manager.local != nullptr) manager.local->Revive();
    figures.Look();
  }
  return OkStatus();
}

// Asks the server as any client would, prints the text as it comes, then where the KV lived and how
// fast it was.
Status AnswerPrompt(const ServeOptions& options, Manager& manager) {
  LAMINA_ASSIGN_OR_RETURN(
      const HttpClient client,
      HttpClient::Create(
          manager.api.scheme() + JoinHostPort(HttpHost(options, manager), manager.server->port()),
          {.api_key = manager.api_key, .ca_file = "", .check_certificate = false}));
  const nlohmann::json request = {{"model", manager.config.served_name},
                                  {"prompt", options.prompt},
                                  {"max_tokens", options.max_tokens},
                                  {"temperature", 0},
                                  {"stream", true},
                                  {"stream_options", {{"include_usage", true}}}};
  std::cout << '\n' << options.prompt << std::flush;
  std::map<std::string, NodeStatus> peak;  // per node, when it held most
  int64_t tokens = 0;
  std::string error;
  const TimePoint start = Clock::now();
  const Result<HttpResponse> response =
      client.PostForEvents("/v1/completions", request.dump(), [&](std::string_view data) {
        const nlohmann::json event =
            nlohmann::json::parse(data, nullptr, /*allow_exceptions=*/false);
        if (!event.is_object()) return true;  // [DONE]
        if (event.contains("error")) error = event["error"].value("message", "unknown error");
        if (event.contains("usage") && event["usage"].is_object())
          tokens = event["usage"].value("completion_tokens", int64_t{0});
        for (const auto& choice : event.value("choices", nlohmann::json::array())) {
          const bool is_cut = choice.value("finish_reason", nlohmann::json()) == "length";
          std::cout << choice.value("text", "") << (is_cut ? " ..." : "") << std::flush;
        }
        for (const NodeStatus& node : manager.engine->status().nodes) {
          if (node.used_tokens > peak[node.name].used_tokens) peak[node.name] = node;
        }
        return !IsStopRequested();
      });
  const double seconds = SecondsSince(start);
  std::cout << "\n\n";
  if (!response.ok()) return response.status();
  if (!response->ok()) return InternalError(ErrorMessageOf(*response));
  if (!error.empty()) return InternalError(error);
  if (IsStopRequested()) return TryAgain("stopped before the end of the answer");
  for (const auto& [name, node] : peak) {
    if (node.used_tokens == 0) continue;
    Say(fmt::format("KV cache: {} tokens on {} node {} at {}{}", node.used_tokens,
                    NodeRoleName(node.role), name, node.address,
                    node.transport.empty() ? "" : " (data path: " + node.transport + ")"));
  }
  Say(fmt::format("Speed: {} tokens in {:.2f} s, {:.1f} tokens/s", tokens, seconds,
                  static_cast<double>(tokens) / seconds));
  return OkStatus();
}

// Everything up to the first request.
Status StartServing(const ServeOptions& options, Manager& manager) {
  if (options.cluster_file) {
    LAMINA_ASSIGN_OR_RETURN(manager.config, ClusterConfig::Load(*options.cluster_file));
  } else {
    if (options.model.empty())
      return InvalidArgument(
          "name a model folder or a GGUF file, or a cluster with --cluster FILE");
    if (options.num_batches == 0)
      // Its nodes share cores: what one does meanwhile the other has to wait for.
      manager.config.pipeline = PipelineMode::kNone;
  }
  LAMINA_RETURN_IF_ERROR(ApplyOptions(options, manager.config));
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, manager.config.LoadModel());
  LAMINA_ASSIGN_OR_RETURN(const ModelFacts facts, FactsOf(model, manager.config.model_path));
  if (!options.cluster_file) {
    LAMINA_ASSIGN_OR_RETURN(manager.config.nodes,
                            PlanLocalCluster(options, manager.config, model, facts));
  }
  manager.api = options.api;
  manager.api.Complete(manager.config);
  LAMINA_ASSIGN_OR_RETURN(manager.api_key, FindApiKey(options.api_key, options.api_key_file));
  LAMINA_ASSIGN_OR_RETURN(manager.files, ModelFiles::Load(manager.config));
  // Nodes of a cluster may have weights that are not on this host.
  if (!options.cluster_file && manager.config.load_format == LoadFormat::kAuto)
    LAMINA_RETURN_IF_ERROR(facts.weights);
  if (!options.trace_out.empty()) {
    LAMINA_ASSIGN_OR_RETURN(manager.trace, TraceFile::Create(options.trace_out));
  }
  LAMINA_ASSIGN_OR_RETURN(manager.server,
                          StartHttp(manager.config, manager.files,
                                    {HttpHost(options, manager), manager.config.http_port,
                                     manager.api_key, manager.api}));
  if (manager.config.front_port != 0) {
    LAMINA_ASSIGN_OR_RETURN(manager.fronts, EngineServer::Open(manager.config));
    manager.id = RandomId();
  }
  Say(StartScreen(manager.config, manager.files.model, facts));
  if (IsStopRequested()) return TryAgain("interrupted");
  if (!options.cluster_file) LAMINA_RETURN_IF_ERROR(StartLocalCluster(manager));
  return StartEngine(manager);
}

// A start-up that nobody wants any more.
Status GiveUpStarting(Manager& manager) {
  if (manager.local != nullptr) {
    // A node may be in the middle of a large weight, and has nothing to lose.
    for (const auto& [name, pid] : manager.local->pids())
      LAMINA_RETURN_IF_ERROR(manager.local->Kill(name, SIGKILL));
  }
  return TryAgain("stopped before the cluster served");
}

// The requests under way may end if somebody asked to stop; those of fronts go on with the next
// manager.
Status StopServing(Manager& manager) {
  const Status stopped =
      StopHttp(*manager.server, manager.engine->status(), manager.config.drain_timeout);
  if (manager.trace == nullptr) return stopped;
  manager.server.reset();
  manager.fronts.reset();
  manager.engine.reset();  // it holds the last records
  const Status closed = manager.trace->Close();
  return stopped.ok() ? closed : stopped;
}

}  // namespace

Status Serve(const ServeOptions& options) {
  HandleStopSignals();
  Manager manager;
  if (const Status started = StartServing(options, manager); !started.ok())
    return IsStopRequested() ? GiveUpStarting(manager) : started;
  for (const NodeConfig& node : manager.config.daemons()) {
    if (IsModelledName(node.device))
      Say(fmt::format("{} is {}: it takes its time and computes nothing, so answers are arbitrary",
                      node.name, node.device));
  }
  Say(fmt::format("{} is served on {}{}/v1", manager.config.served_name, manager.api.scheme(),
                  JoinHostPort(HttpHost(options, manager), manager.server->port())));
  if (manager.fronts != nullptr)
    Say(fmt::format("Fronts are taken at {} (lamina front)", manager.fronts->address()));

  Status result;
  if (!options.prompt.empty()) result = AnswerPrompt(options, manager);
  if (result.ok() && !options.once) {
    Say("Ctrl-C stops it. Try: lamina complete \"Once upon a time\"");
    result = ServeUntilStopped(manager);
    Say("Stopping");
  }
  const Status stopped = StopServing(manager);
  return result.ok() ? stopped : result;
}

}  // namespace lamina
