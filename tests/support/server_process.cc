#include "tests/support/server_process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

bool Runs(pid_t pid) { return FindProcess(pid).has_value(); }

int64_t MemoryMib(pid_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) / 1024;
  }
  return 0;
}

CommandOutput RunLamina(const std::vector<std::string>& arguments, Clock::duration limit) {
  std::vector<std::string> argv = {BinPath("/lamina")};
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  Result<CommandOutput> output = RunCommand(argv, Deadline::After(limit));
  if (!output.ok()) return {-1, "", output.status().ToString()};
  return *output;
}

std::vector<std::string> WithDescriptors(int num_descriptors, std::vector<std::string> argv) {
  argv.insert(
      argv.begin(),
      {"/bin/sh", "-c", "ulimit -n " + std::to_string(num_descriptors) + "; exec \"$@\"", "sh"});
  return argv;
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::Start(std::vector<std::string> arguments,
                                                            int num_descriptors) {
  auto server = std::make_unique<ServerProcess>();
  server->port_ = FreePort();
  server->is_https_ = std::ranges::find(arguments, "--ssl-certfile") != arguments.end();
  server->log_path_ = (fs::temp_directory_path() / ("lamina-serve-" + std::to_string(getpid()) +
                                                    "-" + std::to_string(server->port_)))
                          .string();
  ChildProcess::Options options;
  options.argv = {BinPath("/lamina"), "serve", "--port", std::to_string(server->port_)};
  options.argv.insert(options.argv.end(), arguments.begin(), arguments.end());
  if (num_descriptors > 0) options.argv = WithDescriptors(num_descriptors, std::move(options.argv));
  options.log_path = server->log_path_;
  LAMINA_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Spawn(options));
  server->process_ = std::move(process);
  const bool ready =
      AwaitTrue([&] { return server->Health() == 200 || !server->process_->running(); },
                Deadline::After(std::chrono::seconds(60))) &&
      server->Health() == 200;
  if (!ready) return InternalError("lamina serve did not come up: " + server->output());
  return server;
}

ServerProcess::~ServerProcess() {
  if (process_) process_->Stop(Deadline::After(std::chrono::seconds(30)));
  unlink(log_path_.c_str());
}

std::string ServerProcess::output() const { return ReadAll(log_path_); }

int ServerProcess::Health() const {
  const Result<HttpResponse> response = client().Get("/health");
  return response.ok() ? response->status : 0;
}

nlohmann::json ServerProcess::Status() const {
  const Result<HttpResponse> response = client().Get("/cluster/status");
  return response.ok() ? nlohmann::json::parse(response->body, nullptr, false) : nlohmann::json();
}

std::vector<pid_t> ServerProcess::Daemons() const {
  std::istringstream children(ReadAll("/proc/" + std::to_string(process_->pid()) + "/task/" +
                                      std::to_string(process_->pid()) + "/children"));
  return {std::istream_iterator<pid_t>(children), {}};
}

std::optional<pid_t> ServerProcess::DaemonOf(const std::string& node) const {
  for (const pid_t child : Daemons()) {
    const std::string command = ReadAll("/proc/" + std::to_string(child) + "/cmdline");
    if (command.find(std::string("--name") + '\0' + node + '\0') != std::string::npos) return child;
  }
  return std::nullopt;
}

size_t ServerProcess::NumOpenFiles() const {
  const fs::directory_iterator files("/proc/" + std::to_string(process_->pid()) + "/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

std::string ServerProcess::AwaitIdle(Deadline deadline) const {
  nlohmann::json status;
  const bool idle = AwaitTrue(
      [&] {
        status = Status();
        if (!status.is_object()) return false;
        int64_t held = 0;
        for (const char* count : {"num_running", "num_waiting", "num_parked"})
          held += status["scheduler"][count].get<int64_t>();
        for (const auto& node : status["nodes"]) {
          if (node["state"] == "ready")
            held += node["used_tokens"].get<int64_t>() + node["stored_tokens"].get<int64_t>();
        }
        return held == 0;
      },
      deadline);
  return idle ? "" : status.dump();
}

}  // namespace lamina::testing
