#include "tests/support/manager_process.h"

#include <fmt/format.h>

#include <csignal>
#include <vector>

#include "base/net_address.h"
#include "model/model_config.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"

namespace lamina::testing {
namespace {

std::string Ms(Clock::duration duration) {
  return fmt::format("{}ms",
                     std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
}

// What scenarios set, as a cluster file.
std::string YamlOf(const ClusterConfig& config) {
  std::string yaml = fmt::format(
      "version: 1\n"
      "cluster: {{name: {}, http_port: {}, front_port: {}}}\n"
      "nodes:\n",
      config.name, config.http_port, config.front_port);
  for (const NodeConfig& node : config.nodes) {
    yaml += fmt::format("  - {{name: {}, role: {}, host: {}, port: {}, threads: {}", node.name,
                        NodeRoleName(node.role), node.host, node.port, node.threads);
    if (node.role == NodeRole::kMemory) yaml += fmt::format(", memory: {}", node.memory_bytes);
    yaml += "}\n";
  }
  yaml += fmt::format("model: {{path: {}, kv_dtype: {}}}\n", config.model_path,
                      kKvDTypeChoices.NameOf(config.kv_dtype));
  yaml += fmt::format("transport: {{kind: {}}}\n", TransportKindName(config.transport));
  yaml += fmt::format(
      "attention: {{kv_head_parallel: {}, spread_tokens: {}, wire_dtype: {}, prefix_caching: "
      "{}}}\n",
      config.kv_head_parallel, config.spread_tokens, kWireDTypeChoices.NameOf(config.wire_dtype),
      config.prefix_caching);
  yaml += fmt::format("pipeline: {{policy: {}}}\n", kPipelineModes.NameOf(config.pipeline));
  yaml += fmt::format("parallel: {{pipeline_parallel_size: {}, tensor_parallel_size: {}}}\n",
                      config.pipeline_parallel_size, config.tensor_parallel_size);
  yaml += fmt::format(
      "limits: {{max_num_seqs: {}, max_num_batched_tokens: {}, start_timeout: {}, "
      "step_timeout: {}, peer_timeout: {}, suspect_after: {}}}\n",
      config.max_num_seqs, config.max_num_batched_tokens, Ms(config.start_timeout),
      Ms(config.step_timeout), Ms(config.peer_timeout), Ms(config.suspect_after));
  return yaml;
}

}  // namespace

ManagerProcess::ManagerProcess(ClusterConfig config) : config_(std::move(config)) {
  config_.http_port = FreePort();
  config_.front_port = FreePort();
  if (config_.served_name.empty()) config_.served_name = "tiny-stories";
  WriteFile(config_file(), YamlOf(config_));
}

ManagerProcess::~ManagerProcess() {
  if (!process_) return;
  process_->Kill(SIGCONT);
  process_->Stop(Deadline::After(std::chrono::seconds(20)));
}

Status ManagerProcess::Start() {
  ChildProcess::Options options;
  options.argv = {BinPath("/lamina"), "serve", "--cluster", config_file()};
  options.log_path = folder_ / "manager.log";
  LAMINA_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Spawn(options));
  process_.emplace(std::move(process));
  return OkStatus();
}

void ManagerProcess::Send(int signal) { process_->Kill(signal); }

void ManagerProcess::AwaitEnd(Deadline deadline) { process_->Wait(deadline); }

Result<std::unique_ptr<RemoteEngine>> ManagerProcess::Connect() const {
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig model, ModelConfig::Load(config_.model_path));
  LAMINA_ASSIGN_OR_RETURN(const RemoteEngineOptions options,
                          RemoteEngineOptions::Of(config_, model.vocab_size, "the test"));
  return RemoteEngine::Connect(options, [] { return false; });
}

std::string ManagerProcess::url() const {
  return "http://" + JoinHostPort("127.0.0.1", config_.http_port);
}

std::string ManagerProcess::output() const { return TailOfFile(folder_ / "manager.log", 50); }

}  // namespace lamina::testing
