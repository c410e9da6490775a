// `lamina serve` as a child process, as a user runs it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "api/http_client.h"
#include "manager/process.h"

namespace lamina::testing {

class ServerProcess {
 public:
  // `lamina serve` with these arguments and a free port. Waits until /health is 200; the error
  // holds its output. `num_descriptors`: so many files may it and its daemons have open, at most;
  // 0: as many as this process.
  static Result<std::unique_ptr<ServerProcess>> Start(std::vector<std::string> arguments,
                                                      int num_descriptors = 0);
  ~ServerProcess();

  int port() const { return port_; }
  // https if the arguments name a certificate.
  std::string url() const {
    return (is_https_ ? "https://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_);
  }
  // Believes whatever certificate is shown.
  HttpClient client() const {
    return *HttpClient::Create(url(), {.api_key = "", .ca_file = "", .check_certificate = false});
  }
  std::string output() const;

  int Health() const;             // HTTP status of /health, 0 if it cannot be reached
  nlohmann::json Status() const;  // of /cluster/status

  // Its child that runs the daemon of this node.
  std::optional<pid_t> DaemonOf(const std::string& node) const;
  std::vector<pid_t> Daemons() const;
  size_t NumOpenFiles() const;

  // Polls until no sequence runs, waits or is parked and no slot is held anywhere; "" then, else
  // the last status.
  std::string AwaitIdle(Deadline deadline) const;

  ChildProcess& process() { return *process_; }

 private:
  std::optional<ChildProcess> process_;
  std::string log_path_;
  int port_ = 0;
  bool is_https_ = false;
};

// The command with a limit on its open files, soft and hard, that it cannot raise.
std::vector<std::string> WithDescriptors(int num_descriptors, std::vector<std::string> argv);

// What a program of lamina that ends by itself printed and how it ended.
CommandOutput RunLamina(const std::vector<std::string>& arguments,
                        Clock::duration limit = std::chrono::seconds(60));

// The id of the process if it still runs.
bool Runs(pid_t pid);

// A line of /proc/PID/status, "VmRSS" or "VmHWM", in MiB; 0 if it cannot be read.
int64_t MemoryMib(pid_t pid, const std::string& name);

}  // namespace lamina::testing
