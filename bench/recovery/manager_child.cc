#include "bench/recovery/manager_child.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <utility>

#include "manager/remote_engine.h"
#include "transport/reserved_port.h"

namespace lamina {
namespace {

constexpr int kLogLines = 20;
// To end by itself when nothing is to be served any more.
constexpr auto kEndPatience = std::chrono::seconds(15);
// Of the end of one that was killed, before the next one is started.
constexpr auto kGonePatience = std::chrono::seconds(10);

}  // namespace

Result<std::unique_ptr<ManagerChild>> ManagerChild::Start(const std::string& file,
                                                          const ClusterConfig& config) {
  std::unique_ptr<ManagerChild> manager(new ManagerChild(config));
  // It need not stay reserved: the manager listens on it with the first thing that it does.
  LAMINA_ASSIGN_OR_RETURN(const ReservedPort reserved, ReservePort());
  manager->config_.controller_host = "127.0.0.1";
  manager->config_.front_port = reserved.port;
  LAMINA_RETURN_IF_ERROR(manager->WriteFile(file));
  LAMINA_RETURN_IF_ERROR(manager->Spawn());
  return manager;
}

ManagerChild::~ManagerChild() {
  if (!child_) return;
  child_->Kill(SIGCONT);
  child_->Stop(Deadline::After(kEndPatience));
}

// The file is known to be right: its nodes run.
Status ManagerChild::WriteFile(const std::string& file) const {
  YAML::Node copy;
  try {
    copy = YAML::LoadFile(file);
    YAML::Node cluster = copy["cluster"];
    cluster["controller"] = config_.controller_host;
    cluster["front_port"] = config_.front_port;
    cluster.remove("secret_file");
    cluster.remove("tls");
    if (!config_.device_catalog.empty()) cluster["device_catalog"] = config_.device_catalog;
    copy["model"]["path"] = config_.model_path;
    const std::vector<NodeConfig> daemons = config_.daemons();
    for (YAML::Node node : copy["nodes"]) {
      const auto runs =
          std::ranges::find(daemons, node["name"].as<std::string>(), &NodeConfig::name);
      node["host"] = runs->host;
      node["port"] = runs->port;
    }
  } catch (const YAML::Exception& error) {
    return InternalError(file + ": " + error.what());
  }
  std::ofstream out(path());
  out << copy << '\n';
  if (out.flush()) return OkStatus();
  return InternalError(path() + ": cannot be written");
}

Status ManagerChild::Spawn() {
  ChildProcess::Options options;
  options.argv = {ProgramFolder() + "/lamina", "serve", "--cluster", path(), "--port", "0"};
  options.log_path = log_path();
  LAMINA_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Spawn(options));
  child_.emplace(std::move(child));
  killed_ = false;
  return OkStatus();
}

Result<std::unique_ptr<Engine>> ManagerChild::Connect(const ModelConfig& model) {
  LAMINA_ASSIGN_OR_RETURN(const RemoteEngineOptions options,
                          RemoteEngineOptions::Of(config_, model.vocab_size, "the benchmark"));
  Result<std::unique_ptr<RemoteEngine>> engine =
      RemoteEngine::Connect(options, [this] { return !Check().ok(); });
  LAMINA_RETURN_IF_ERROR(Check());
  LAMINA_RETURN_IF_ERROR(engine.status());
  return std::unique_ptr<Engine>(*std::move(engine));
}

void ManagerChild::Kill(int signal) {
  killed_ |= signal == SIGKILL;
  child_->Kill(signal);
}

Status ManagerChild::Restart() {
  if (!child_->Wait(Deadline::After(kGonePatience)))
    return TryAgain("the manager does not end though it was killed");
  return Spawn();
}

Status ManagerChild::Check() {
  if (killed_ || child_->running()) return OkStatus();
  return PeerLost(fmt::format("the manager {}:\n{}", child_->exit_description(),
                              TailOfFile(log_path(), kLogLines)));
}

}  // namespace lamina
