// What the programs lamina-compute-node and lamina-memory-node have in common: their options, how
// the process is prepared, and how it runs until it is asked to leave.
//
//   int main(int argc, char** argv) {
//     NodeOptions options;
//     Daemon daemon("compute", "lamina-compute-node", "Compute node of ...", options);
//     daemon.app().add_option(...);  // what only this kind of node has
//     if (const std::optional<int> status = daemon.Prepare(argc, argv)) return *status;
//     return daemon.Run(ComputeNode::Create(options));
//   }
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/departure.h"
#include "base/log.h"
#include "base/status.h"
#include "node/node_options.h"

namespace CLI {
class App;
}

namespace lamina {

// Thread: the main thread.
class Daemon {
 public:
  // `kind` begins the lines of the log, with the node's name. `options` are what Prepare fills in
  // from the command line; they are borrowed.
  Daemon(const std::string& kind, const std::string& program, const std::string& description,
         NodeOptions& options);
  ~Daemon();

  CLI::App& app() { return *app_; }

  // Parses the command line, begins the log, raises the limit of descriptors, finds the device and
  // goes to the cores that were named. Returns the status with which the process has to exit, if it
  // has to: 0 after --help, 2 for a mistake, which was printed.
  std::optional<int> Prepare(int argc, char** argv);

  // Runs the node until the process is asked to leave, by the signals or the end of stdin. Returns
  // the exit status: 1 if there is no node, or if it left a manager's session.
  template <typename Node>
  int Run(const Result<std::unique_ptr<Node>>& node) {
    if (!node.ok()) {
      LAMINA_LOG_ERROR("{}", node.status().message());
      return 1;
    }
    static Node* running;  // RunUntilAsked takes plain functions, which a signal handler can call
    running = node->get();
    LAMINA_LOG_INFO("listening on {}", running->address());
    return RunUntilAsked(
        leave_with_stdin_, [] { running->Leave(); }, [] { running->Stop(); },
        [] { return running->Run(); });
  }

 private:
  Status TakeDevice();
  Status TakeCpus();

  const std::string kind_;
  NodeOptions& options_;
  std::string device_ = "cpu", device_catalog_, cpus_;
  int drain_seconds_;
  bool leave_with_stdin_ = false;
  const std::unique_ptr<CLI::App> app_;
};

}  // namespace lamina
