#include "cli/run_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "api/http_client.h"
#include "api/http_server.h"
#include "base/inbox.h"
#include "base/log.h"
#include "base/net_address.h"
#include "cost/node_device.h"
#include "manager/api_key.h"
#include "manager/cluster_executor.h"
#include "manager/local_cluster.h"
#include "manager/serving_engine.h"
#include "text/byte_tokenizer.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lamina {
namespace {

// At the processes of a local cluster, and at whether there is any hope.
constexpr auto kLookInterval = milliseconds(200);

WakeFd& StopRequested() {
  static WakeFd wake;
  return wake;
}

bool IsStopRequested(Deadline deadline) {
  pollfd entry{StopRequested().fd(), POLLIN, 0};
  return poll(&entry, 1, deadline.RemainingMs()) > 0;
}

bool IsStopRequested() { return IsStopRequested(Deadline::After(Clock::duration::zero())); }

void Say(const std::string& line) { std::cout << line << std::endl; }

// Everything that a manager owns; members are destroyed from last to first.
struct Manager {
  ClusterConfig config;
  ModelConfig model;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;
  std::unique_ptr<Metrics> metrics;
  std::unique_ptr<LocalCluster> local;
  std::unique_ptr<TraceFile> trace;  // null: none is written
  std::unique_ptr<ServingEngine> engine;
  std::unique_ptr<HttpServer> server;  // stopped before the engine goes
  std::string no_chat_reason;
  std::string api_key;  // "": none is asked for
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
  Override(config.model_path, options.model);
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

// Its compute node computes nothing, so the model needs no more than its config.json.
bool IsModelled(const ClusterConfig& config) {
  return std::ranges::any_of(config.nodes, [](const NodeConfig& node) {
    return node.role == NodeRole::kCompute && IsModelledName(node.device);
  });
}

// Reads what text needs: sizes, tokenizer, chat template. Before any process starts, so that a
// wrong path fails at once.
Status LoadModelFiles(Manager& manager) {
  const std::string& dir = manager.config.model_path;
  LAMINA_ASSIGN_OR_RETURN(manager.model, ModelConfig::Load(dir));
  LAMINA_RETURN_IF_ERROR(ResolveConfig(manager.config, manager.model));
  Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(dir);
  if (tokenizer.status().code() == StatusCode::kNotFound && IsModelled(manager.config))
    tokenizer = MakeByteTokenizer(manager.model.vocab_size, manager.model.bos_token,
                                  manager.model.first_eos());
  LAMINA_ASSIGN_OR_RETURN(manager.tokenizer, std::move(tokenizer));
  Result<std::unique_ptr<ChatTemplate>> chat = ChatTemplate::Load(dir);
  if (chat.ok()) {
    manager.chat_template = std::move(*chat);
  } else {
    manager.no_chat_reason = chat.status().message();
    if (chat.status().code() != StatusCode::kNotFound)
      LAMINA_LOG_WARN("chat is off: {}", chat.status().message());
  }
  return OkStatus();
}

std::string HttpHost(const ServeOptions& options, const Manager& manager) {
  if (!options.host.empty()) return CanonicalHost(options.host);
  return options.cluster_file ? manager.config.controller_host : "127.0.0.1";
}

Status StartHttp(const ServeOptions& options, Manager& manager) {
  manager.metrics = std::make_unique<Metrics>(manager.config.served_name);
  ServerOptions server;
  server.host = HttpHost(options, manager);
  server.port = static_cast<uint16_t>(manager.config.http_port);
  server.service.api_key = manager.api_key;
  server.service.max_queued_requests = manager.config.max_num_queued_reqs;
  ServedModel model;
  model.name = manager.config.served_name;
  model.root = manager.config.model_path;
  model.tokenizer = manager.tokenizer.get();
  model.chat_template = manager.chat_template.get();
  if (!manager.no_chat_reason.empty()) model.no_chat_reason = manager.no_chat_reason;
  model.config = manager.model;
  LAMINA_ASSIGN_OR_RETURN(manager.server, HttpServer::Create(server, model, *manager.metrics));
  manager.server->Start();
  return OkStatus();
}

// What the local cluster will be.
Result<std::vector<NodeConfig>> PlanLocalCluster(const ServeOptions& options) {
  LocalClusterOptions local;
  const int num_shares =
      std::max(options.pipeline_parallel_size, 1) * std::max(options.tensor_parallel_size, 1);
  local.num_compute_nodes = options.num_compute_nodes > 0 ? options.num_compute_nodes : num_shares;
  local.num_memory_nodes = options.num_memory_nodes;
  if (local.num_compute_nodes > 1 && local.num_memory_nodes == 0)
    return InvalidArgument("several compute nodes need memory nodes; --memory-nodes is 0");
  LAMINA_ASSIGN_OR_RETURN(local.memory_bytes, ParseSize(options.memory));
  local.compute_threads = options.compute_threads;
  local.memory_threads = options.memory_threads;
  local.device = options.device;
  local.memory_device = options.memory_device.empty() ? options.device : options.memory_device;
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
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ClusterExecutor> executor,
                          ClusterExecutor::Connect(manager.config, manager.model, Say,
                                                   [] { return IsStopRequested(); }));
  const auto record = [trace = manager.trace.get()](ClusterExecutor& nodes) {
    if (trace != nullptr) nodes.RecordTrace(*trace);
  };
  record(*executor);
  ServingEngineOptions options = ServingEngineOptions::Of(manager.config, manager.model);
  options.reconnect = ReconnectTo(manager.config, manager.model, {.progress = Say}, record);
  options.look = LookAmong(manager.config, manager.model);
  options.observer = manager.metrics.get();
  manager.engine = std::make_unique<ServingEngine>(options, std::move(executor));
  manager.server->SetEngine(manager.engine.get());
  return OkStatus();
}

// An error: nothing will be served any more. Somebody above, such as a supervisor, has to act then.
Status ServeUntilStopped(Manager& manager) {
  while (!IsStopRequested(Deadline::After(kLookInterval))) {
    LAMINA_RETURN_IF_ERROR(manager.engine->given_up());
    if (manager.local != nullptr) manager.local->Revive();
  }
  return OkStatus();
}

// Asks the server as any client would, prints the text as it comes, then where the KV lived and how
// fast it was.
Status AnswerPrompt(const ServeOptions& options, Manager& manager) {
  LAMINA_ASSIGN_OR_RETURN(const HttpClient client,
                          HttpClient::Create("http://" + JoinHostPort(HttpHost(options, manager),
                                                                      manager.server->port()),
                                             {.api_key = manager.api_key}));
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
        for (const auto& choice : event.value("choices", nlohmann::json::array()))
          std::cout << choice.value("text", "") << std::flush;
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

void HandleSignals() {
  StopRequested();  // made before a handler can run
  std::signal(SIGTERM, [](int) { StopRequested().Signal(); });
  std::signal(SIGINT, [](int) {
    StopRequested().Signal();
    // A second Ctrl-C does not wait for anybody; the nodes end with this process.
    std::signal(SIGINT, SIG_DFL);
  });
  std::signal(SIGPIPE, SIG_IGN);
}

// Everything up to the first request.
Status StartServing(const ServeOptions& options, Manager& manager) {
  if (options.cluster_file) {
    LAMINA_ASSIGN_OR_RETURN(manager.config, ClusterConfig::Load(*options.cluster_file));
  } else {
    if (options.model.empty())
      return InvalidArgument("name a model folder, or a cluster with --cluster FILE");
    LAMINA_ASSIGN_OR_RETURN(manager.config.nodes, PlanLocalCluster(options));
    if (options.num_batches == 0)
      // Its nodes share cores: what one does meanwhile the other has to wait for.
      manager.config.pipeline = PipelineMode::kNone;
  }
  LAMINA_RETURN_IF_ERROR(ApplyOptions(options, manager.config));
  LAMINA_ASSIGN_OR_RETURN(manager.api_key, FindApiKey(options.api_key, options.api_key_file));
  LAMINA_RETURN_IF_ERROR(LoadModelFiles(manager));
  if (!options.trace_out.empty()) {
    LAMINA_ASSIGN_OR_RETURN(manager.trace, TraceFile::Create(options.trace_out));
  }
  LAMINA_RETURN_IF_ERROR(StartHttp(options, manager));
  if (IsStopRequested()) return TryAgain("interrupted");
  if (!options.cluster_file) LAMINA_RETURN_IF_ERROR(StartLocalCluster(manager));
  return StartEngine(manager);
}

// A start-up that nobody wants any more.
Status GiveUpStarting(Manager& manager) {
  if (manager.local != nullptr) {
    // A node that loads weights would look up from them too late, and has nothing to lose.
    for (const auto& [name, pid] : manager.local->pids())
      LAMINA_RETURN_IF_ERROR(manager.local->Kill(name, SIGKILL));
  }
  return TryAgain("stopped before the cluster served");
}

// Waits for the requests under way if somebody asked to stop. An error if they did not all end
// well, or if an outage had ended them before.
Status StopServing(Manager& manager) {
  const bool asked = IsStopRequested();
  const EngineStatus before = manager.engine->status();
  const Clock::duration grace = asked ? manager.config.drain_timeout : Clock::duration::zero();
  const size_t failed = manager.server->Stop(grace);
  Status result;
  if (failed > 0) {
    result = TimedOut(fmt::format(
        "{} request{} under way did not end well: they failed, or took longer than {:.0f} s "
        "(--drain-timeout)",
        failed, failed == 1 ? "" : "s", std::chrono::duration<double>(grace).count()));
  } else if (asked && !before.serving) {
    result = PeerLost("stopped while nothing could be served: " + before.detail);
  }
  if (manager.trace == nullptr) return result;
  manager.server.reset();
  manager.engine.reset();  // it holds the last records
  const Status closed = manager.trace->Close();
  return result.ok() ? closed : result;
}

}  // namespace

Status Serve(const ServeOptions& options) {
  HandleSignals();
  Manager manager;
  if (const Status started = StartServing(options, manager); !started.ok())
    return IsStopRequested() ? GiveUpStarting(manager) : started;
  for (const NodeConfig& node : manager.config.daemons()) {
    if (IsModelledName(node.device))
      Say(fmt::format("{} is {}: it takes its time and computes nothing, so answers are arbitrary",
                      node.name, node.device));
  }
  Say(fmt::format("{} is served on http://{}/v1", manager.config.served_name,
                  JoinHostPort(HttpHost(options, manager), manager.server->port())));

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
