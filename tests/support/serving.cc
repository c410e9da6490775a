#include "tests/support/serving.h"

#include <algorithm>
#include <thread>

#include "bench/in_process_executor.h"
#include "manager/cluster_executor.h"
#include "tests/support/paths.h"

namespace lamina::testing {

Engine::Sink Collector::sink() const {
  return [state = state_](const TokenEvent& event) {
    std::lock_guard lock(state->mutex);
    Generated& generated = state->results.at(static_cast<size_t>(event.index));
    generated.scored.insert(generated.scored.end(), event.scored.begin(), event.scored.end());
    if (!event.embedding.empty()) generated.embedding = event.embedding;
    if (event.token) {
      generated.tokens.push_back(*event.token);
      generated.logprobs.push_back(event.logprob);
      generated.tops.push_back(event.top);
    }
    if (event.finish) {
      generated.reason = *event.finish;
      generated.error = event.error;
      generated.finished = true;
    }
    state->changed.notify_all();
  };
}

bool Collector::Wait(Deadline deadline) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline.at(), [&] {
    for (const Generated& generated : state_->results) {
      if (!generated.finished) return false;
    }
    return true;
  });
}

bool Collector::WaitForTokens(size_t count, Deadline deadline) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline.at(), [&] {
    return state_->results[0].tokens.size() >= count || state_->results[0].finished;
  });
}

std::vector<Generated> Collector::results() const {
  std::lock_guard lock(state_->mutex);
  return state_->results;
}

GenerateRequest GreedyRequest(std::vector<TokenId> prompt, int64_t max_new_tokens) {
  GenerateRequest request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  request.sampling.temperature = 0;
  request.sampling.num_logprobs = 5;
  return request;
}

std::string Deployment::Name() const {
  std::string devices = compute_device == "cpu" ? "" : "_computed_on_" + compute_device;
  for (const std::string& device : memory_devices) devices += "_kept_on_" + device;
  std::replace(devices.begin(), devices.end(), ':', '_');
  if (compute_threads > 1) devices += "_" + std::to_string(compute_threads) + "_threads";
  const std::string kv(DTypeName(kv_dtype));
  if (kind == "in-process") return "one_process_" + kv + devices;
  const std::string heads =
      kv_head_parallel > 1 ? "_heads_over_" + std::to_string(kv_head_parallel) : "";
  const std::string spread = spread_tokens > 0 ? "_spread_" + std::to_string(spread_tokens) : "";
  const std::string wire = wire_dtype ? "_" + std::string(DTypeName(*wire_dtype)) + "_wire" : "";
  const std::string overlapped =
      (overlap == Switch::kOn ? "_overlap" : "") +
      std::string(modelled_latency > Clock::duration::zero() ? "_modelled_link" : "");
  const std::string polled =
      polling == PollingMode::kHost ? "" : "_polled_by_" + std::string(PollingModeName(polling));
  const std::string batches = num_batches > 1 ? "_" + std::to_string(num_batches) + "_batches" : "";
  const std::string policy =
      pipeline == PipelineMode::kAuto ? "" : "_" + std::string(PipelineModeName(pipeline));
  const std::string stages =
      pipeline_parallel_size > 1 ? "_" + std::to_string(pipeline_parallel_size) + "_stages" : "";
  const std::string ranks =
      tensor_parallel_size > 1 ? "_" + std::to_string(tensor_parallel_size) + "_ranks" : "";
  const auto outside_of = [](const OffloadOptions& of, const std::string& what) {
    if (of.is_elastic()) return "_" + what + "_in_as_many_places_as_fit";
    if (of.is_auto) return "_" + what + "_outside_as_objectives_allow";
    if (of.expansion > 0) return "_" + what + "_in_fewer_places";
    if (of.interval == 0) return std::string();
    return "_" + what + "_outside_every_" + std::to_string(of.interval) + "_over_" +
           std::to_string(of.buffers);
  };
  const std::string outside = outside_of(offload, "weights") + outside_of(memory_offload, "kv") +
                              outside_of(kv_offload, "own_kv");
  const int num_shares = pipeline_parallel_size * tensor_parallel_size;
  const std::string standbys = num_standbys > 0 ? std::to_string(num_standbys) + "_standby_" : "";
  return std::to_string(num_compute_nodes * num_shares) + "_compute" + stages + ranks + "_" +
         standbys + std::to_string(num_memory_nodes) + "_memory" + heads + spread + policy +
         batches + "_" + std::string(TransportKindName(transport)) + "_" + kv + wire + overlapped +
         polled + outside + devices;
}

Result<ClusterConfig> ConfigOf(const Deployment& deployment, const ModelConfig& model,
                               ClusterConfig config) {
  config.model_path = deployment.model;
  config.slo = deployment.slo;
  if (!deployment.step_times.empty()) {
    LAMINA_ASSIGN_OR_RETURN(StepProfile profile, StepProfile::Of(deployment.step_times));
    config.step_profile = std::make_shared<const StepProfile>(std::move(profile));
  }
  config.load_format = deployment.load_format;
  config.kv_dtype = deployment.kv_dtype;
  config.wire_dtype = deployment.wire_dtype;
  config.overlap = deployment.overlap;
  config.polling = deployment.polling;
  config.modelled_latency = deployment.modelled_latency;
  config.modelled_gb_per_s = deployment.modelled_latency > Clock::duration::zero() ? 10 : 0;
  config.max_num_seqs = deployment.max_num_seqs;
  config.max_num_batched_tokens = deployment.max_num_batched_tokens;
  config.max_num_queued_reqs = deployment.max_queued;
  config.prefix_caching = deployment.prefix_caching;
  config.peer_timeout = deployment.peer_timeout;
  config.suspect_after = deployment.suspect_after;
  config.step_timeout = deployment.step_timeout;
  config.start_timeout = deployment.start_timeout;
  config.kv_head_parallel = deployment.kv_head_parallel;
  config.spread_tokens = deployment.spread_tokens;
  config.pipeline = deployment.pipeline;
  config.num_batches = deployment.num_batches;
  config.pipeline_parallel_size = deployment.pipeline_parallel_size;
  config.tensor_parallel_size = deployment.tensor_parallel_size;
  LAMINA_RETURN_IF_ERROR(ResolveConfig(config, model));
  return config;
}

namespace {

Result<std::unique_ptr<StepExecutor>> InProcess(const Deployment& deployment,
                                                const ModelConfig& model) {
  InProcessOptions options;
  options.weights.model_dir = deployment.model;
  options.weights.load_format = deployment.load_format;
  LAMINA_ASSIGN_OR_RETURN(options.device, FindDevice(deployment.compute_device, ""));
  options.num_threads = deployment.compute_threads;
  options.limits.max_num_seqs = deployment.max_num_seqs;
  options.limits.max_num_batched_tokens = deployment.max_num_batched_tokens;
  options.limits.max_model_len = model.max_positions;
  options.kv_dtype = deployment.kv_dtype;
  options.kv_tokens = deployment.memory_bytes / KvBytesPerToken(model, deployment.kv_dtype);
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<InProcessExecutor> executor,
                          InProcessExecutor::Create(options));
  return std::unique_ptr<StepExecutor>(std::move(executor));
}

Result<std::unique_ptr<LocalCluster>> StartNodes(const Deployment& deployment) {
  LocalClusterOptions options;
  options.num_compute_nodes = deployment.num_compute_nodes * deployment.pipeline_parallel_size *
                              deployment.tensor_parallel_size;
  options.num_memory_nodes = deployment.num_memory_nodes;
  options.memory_bytes = deployment.memory_bytes;
  options.compute_threads = deployment.compute_threads;
  options.transport = deployment.transport;
  options.bin_dir = BinPath();
  options.nodes = LocalNodes(options);
  for (int i = 0; i < deployment.num_standbys; ++i)
    options.standbys.push_back({.name = "s" + std::to_string(i),
                                .role = NodeRole::kCompute,
                                .threads = deployment.compute_threads});
  size_t num_memory = 0;
  for (NodeConfig& node : options.nodes) {
    if (node.role == NodeRole::kCompute) {
      node.device = deployment.compute_device;
      node.offload = deployment.offload;
      node.kv_offload = deployment.kv_offload;
    } else {
      node.offload = deployment.memory_offload;
      if (!deployment.memory_devices.empty())
        node.device = deployment.memory_devices.at(num_memory++);
    }
  }
  return LocalCluster::Create(options);
}

}  // namespace

Result<std::unique_ptr<Serving>> Serving::Create(const Deployment& deployment) {
  if (deployment.kind == "in-process") {
    auto serving = std::make_unique<Serving>();
    LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, ModelConfig::Load(deployment.model));
    LAMINA_ASSIGN_OR_RETURN(auto executor, InProcess(deployment, model));
    LAMINA_ASSIGN_OR_RETURN(const ClusterConfig config, ConfigOf(deployment, model));
    serving->engine = std::make_unique<ServingEngine>(
        ServingEngineOptions::Of(InOneProcess(config), model), std::move(executor));
    return serving;
  }
  LAMINA_ASSIGN_OR_RETURN(auto cluster, StartNodes(deployment));
  LAMINA_ASSIGN_OR_RETURN(auto serving, Connect(cluster->config(), deployment));
  serving->cluster = std::move(cluster);
  return serving;
}

Result<std::unique_ptr<Serving>> Serving::CreateWithManager(const Deployment& deployment) {
  auto serving = std::make_unique<Serving>();
  LAMINA_ASSIGN_OR_RETURN(serving->cluster, StartNodes(deployment));
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, ModelConfig::Load(deployment.model));
  LAMINA_ASSIGN_OR_RETURN(const ClusterConfig config,
                          ConfigOf(deployment, model, serving->cluster->config()));
  serving->manager = std::make_unique<ManagerProcess>(config);
  LAMINA_RETURN_IF_ERROR(serving->manager->Start());
  Result<std::unique_ptr<RemoteEngine>> engine = serving->manager->Connect();
  if (!engine.ok()) return engine.status().WithContext(serving->manager->output());
  serving->engine = *std::move(engine);
  return serving;
}

Result<std::unique_ptr<Serving>> Serving::Connect(ClusterConfig config,
                                                  const Deployment& deployment) {
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, ModelConfig::Load(deployment.model));
  LAMINA_ASSIGN_OR_RETURN(config, ConfigOf(deployment, model, std::move(config)));
  auto serving = std::make_unique<Serving>();
  LAMINA_ASSIGN_OR_RETURN(auto executor, ClusterExecutor::Connect(config, model, {}));
  ServingEngineOptions options = ServingEngineOptions::Of(config, model);
  options.reconnect = ReconnectTo(config, model);
  options.look = LookAmong(config, model);
  serving->engine = std::make_unique<ServingEngine>(options, std::move(executor));
  return serving;
}

std::string AwaitNoTokens(Engine& engine, Deadline deadline) {
  std::string held;
  AwaitTrue(
      [&] {
        const EngineStatus status = engine.status();
        held.clear();
        const SchedulerStats& scheduler = status.scheduler;
        if (scheduler.num_running + scheduler.num_waiting + scheduler.num_parked > 0)
          held += " sequences run, wait or are parked;";
        for (const NodeStatus& node : status.nodes) {
          if (node.state != NodeState::kReady ||
              node.used_tokens + node.stored_tokens + node.stored_sequences == 0)
            continue;
          held += " " + node.name + ": " + std::to_string(node.used_tokens) + " slots allocated, " +
                  std::to_string(node.stored_tokens) + " stored;";
        }
        return held.empty();
      },
      deadline);
  return held;
}

bool AwaitTrue(const std::function<bool()>& condition, Deadline deadline) {
  while (!condition()) {
    if (deadline.Passed()) return false;
    std::this_thread::sleep_for(milliseconds(5));  // between two looks at another process
  }
  return true;
}

}  // namespace lamina::testing
