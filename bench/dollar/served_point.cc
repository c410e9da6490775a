#include "bench/dollar/served_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "api/http_server.h"
#include "bench/in_process_executor.h"
#include "bench/serve/served_endpoint.h"
#include "manager/cluster_commands.h"
#include "manager/cluster_executor.h"
#include "manager/local_cluster.h"
#include "manager/prefilled_executor.h"
#include "manager/resolve_config.h"
#include "manager/serving_engine.h"

namespace lamina {
namespace {

class LocalPoint : public ServedPoint {
 public:
  LocalPoint(const Sweep& sweep, const SweepPoint& point)
      : load_(sweep.load), shape_(sweep.shapes[point.shape]), point_(point) {}

  Status StartAll() {
    LAMINA_RETURN_IF_ERROR(Configure());
    LAMINA_ASSIGN_OR_RETURN(tokenizer_, LoadTokenizerOrBytes(config_.model_path));
    std::unique_ptr<StepExecutor> executor;
    if (shape_.kind == ShapeKind::kOneProcess) {
      LAMINA_ASSIGN_OR_RETURN(executor, StartInProcess());
    } else {
      LAMINA_ASSIGN_OR_RETURN(executor, StartCluster());
    }
    LAMINA_RETURN_IF_ERROR(CheckRoom(*executor));
    ServingEngineOptions options = ServingEngineOptions::Of(config_, model_);
    if (load_.prefill_left_out) {
      // All prompts appear in one step.
      options.scheduler.max_num_batched_tokens = point_.batch * (point_.context + 1);
      executor = std::make_unique<PrefilledExecutor>(std::move(executor));
    }
    metrics_ = std::make_unique<Metrics>(config_.served_name);
    options.observer = metrics_.get();
    engine_ = std::make_unique<ServingEngine>(options, std::move(executor));
    return StartServer();
  }

  std::string url() const override { return fmt::format("http://127.0.0.1:{}", server_->port()); }
  Status Check() override { return daemons_ != nullptr ? daemons_->Check() : OkStatus(); }
  int num_batches() const override {
    return config_.pipeline == PipelineMode::kAuto
               ? 0
               : std::max(1, std::min(config_.num_batches, point_.batch));
  }
  int tensor_parallel_size() const override { return config_.tensor_parallel_size; }

  std::vector<std::string> commands() const override {
    if (daemons_ == nullptr) return {};
    std::vector<std::string> commands;
    for (const DaemonCommand& daemon : DaemonCommands(config_, "", false))
      commands.push_back(ShellJoin(daemon.argv));
    return commands;
  }

  std::string data_path() override {
    std::set<std::string> fabrics;
    for (const NodeStatus& node : engine_->status().nodes) {
      if (!node.transport.empty()) fabrics.insert(node.transport);
    }
    std::string text;
    for (const std::string& fabric : fabrics) text += (text.empty() ? "" : ", ") + fabric;
    return text;
  }

 private:
  Status Configure() {
    config_ = shape_.config;
    if (shape_.kind == ShapeKind::kOneProcess) config_ = InOneProcess(config_);
    if (point_.pipeline) config_.pipeline = *point_.pipeline;
    config_.prefix_caching = false;  // all prompts differ, and what is kept of them takes room
    config_.max_num_seqs = point_.batch;
    config_.max_num_batched_tokens = std::max(config_.max_num_batched_tokens, point_.batch);
    config_.max_num_queued_reqs = std::max(config_.max_num_queued_reqs, point_.batch);
    config_.step_timeout =
        std::max<Clock::duration>(config_.step_timeout, std::chrono::minutes(10));
    LAMINA_ASSIGN_OR_RETURN(model_, config_.LoadModel());
    LAMINA_RETURN_IF_ERROR(ResolveConfig(config_, model_));
    const int64_t length = point_.context + load_.output_tokens;
    if (length <= config_.max_model_len) return OkStatus();
    return InvalidArgument(
        fmt::format("{} tokens of prompt and {} of answer are more than the model's {}",
                    point_.context, load_.output_tokens, config_.max_model_len));
  }

  Result<std::unique_ptr<StepExecutor>> StartInProcess() {
    const NodeConfig& node = config_.nodes.front();
    InProcessOptions options = InProcessOptions::Of(config_, model_);
    options.kv_tokens = node.memory_bytes > 0
                            ? node.memory_bytes / KvBytesPerToken(model_, config_.kv_dtype)
                            : point_.batch * LengthInSlots();
    options.num_threads = node.threads;
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<InProcessExecutor> executor,
                            InProcessExecutor::Create(options));
    return std::unique_ptr<StepExecutor>(std::move(executor));
  }

  Result<std::unique_ptr<StepExecutor>> StartCluster() {
    LAMINA_ASSIGN_OR_RETURN(daemons_, LocalCluster::CreateFor(config_));
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ClusterExecutor> executor,
                            ClusterExecutor::Connect(config_, model_, {}));
    return std::unique_ptr<StepExecutor>(std::move(executor));
  }

  // Slots of a sequence at its end, with the one that the scheduler keeps free for it to grow into.
  int64_t LengthInSlots() const { return point_.context + load_.output_tokens + 1; }

  Status CheckRoom(const StepExecutor& executor) const {
    int64_t room = 0, total = 0;  // sequences, tokens
    for (const KvNode& node : executor.kv_nodes()) {
      room += node.capacity_tokens / LengthInSlots();
      total += node.capacity_tokens;
    }
    // A sequence that is spread over nodes need not fit on one.
    if (config_.spread_tokens > 0) room = total / LengthInSlots();
    if (room >= point_.batch) return OkStatus();
    return OutOfSpace(
        fmt::format("the KV memory holds {} sequences of {} tokens", room, LengthInSlots()));
  }

  Status StartServer() {
    ServerOptions options;
    options.port = 0;
    options.service.max_queued_requests = config_.max_num_queued_reqs;
    ServedModel served;
    served.name = config_.served_name;
    served.root = config_.model_path;
    served.tokenizer = tokenizer_.get();
    served.config = model_;
    LAMINA_ASSIGN_OR_RETURN(server_, HttpServer::Create(options, served, *metrics_));
    server_->SetEngine(engine_.get());
    server_->Start();
    return OkStatus();
  }

  const SweepLoad& load_;
  const SweepShape& shape_;
  const SweepPoint point_;
  ClusterConfig config_;
  ModelConfig model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<LocalCluster> daemons_;  // null in one process
  std::unique_ptr<ServingEngine> engine_;
  // The last member, so that it stops before the engine goes.
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

Result<std::unique_ptr<ServedPoint>> ServedPoint::Start(const Sweep& sweep,
                                                        const SweepPoint& point) {
  auto served = std::make_unique<LocalPoint>(sweep, point);
  LAMINA_RETURN_IF_ERROR(served->StartAll());
  return std::unique_ptr<ServedPoint>(std::move(served));
}

}  // namespace lamina
