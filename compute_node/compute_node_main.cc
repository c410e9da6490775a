// The program lamina-compute-node, which holds the weights and runs slices. This file reads the
// options, makes the node and runs it until a signal comes.

#include <CLI/CLI.hpp>

#include "base/cpu_list.h"
#include "base/departure.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "compute_node/compute_node.h"
#include "cost/node_device.h"
#include "wire/protobuf_log.h"

namespace {

// A global because RunUntilAsked takes plain functions, which a signal handler can call.
lamina::ComputeNode* running_node = nullptr;

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Compute node of lamina: holds the weights and runs the model slices between attention "
      "operators. The manager says which model.\n"
      "Example: lamina-compute-node --name c0 --listen 10.0.0.1:7100 --secret-file "
      "/etc/lamina/secret",
      "lamina-compute-node");
  lamina::ComputeNodeOptions options;
  std::string device = "cpu", device_catalog, cpus;
  int drain_seconds = static_cast<int>(std::chrono::seconds(lamina::kNodeDrainTimeout).count());
  bool leave_with_stdin = false;
  app.add_option("--name", options.name, "name in the cluster YAML")->capture_default_str();
  app.add_option("--listen", options.listen, "HOST:PORT for the manager; port 0 takes any free one")
      ->capture_default_str();
  app.add_option("--secret-file", options.secret_file,
                 "file with the cluster's secret; off the loopback there must be one, or TLS");
  app.add_option("--tls-certificate", options.tls.certificate,
                 "this host's certificate, for TLS with the manager; needs the next two");
  app.add_option("--tls-key", options.tls.key, "the certificate's private key, mode 600");
  app.add_option("--tls-ca", options.tls.ca, "certificate that the manager's must come from");
  app.add_option("--device", device,
                 "cpu; cuda:N: GPU number N; or modelled:NAME: computes nothing and takes the time "
                 "that device NAME of the catalog would")
      ->capture_default_str();
  app.add_option("--device-catalog", device_catalog,
                 "file with the modelled devices, such as configs/devices.yaml");
  app.add_option("--threads", options.num_threads,
                 "threads of the kernels; 0: all cores, or those of --cpus")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option(
      "--cpus", cpus,
      "cores to run on, such as 0-3,8, and to pin the threads of the kernels to; default: any");
  app.add_option("--drain-timeout", drain_seconds,
                 "seconds: after SIGTERM or Ctrl-C it goes on until the manager's session is over, "
                 "at most so long; a second Ctrl-C ends it")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_flag("--leave-with-stdin", leave_with_stdin,
               "leave when stdin ends, and only then: SIGTERM and Ctrl-C are for whoever holds its "
               "other end");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (leave_with_stdin) lamina::IgnoreLeaveSignals();
  lamina::InitLogging("compute " + options.name);
  lamina::TakeProtobufLog();
  lamina::RaiseDescriptorLimit();
  lamina::Result<lamina::NodeDevice> found = lamina::FindDevice(device, device_catalog);
  if (!found.ok()) {
    LAMINA_LOG_ERROR("--device: {}", found.status().message());
    return 2;
  }
  options.device = *std::move(found);
  options.drain_timeout = std::chrono::seconds(drain_seconds);
  if (lamina::IsModelledName(device))
    LAMINA_LOG_WARN("{}: nothing is computed, answers are arbitrary", device);
  if (!cpus.empty()) {
    if (const lamina::Status bound = lamina::RunOnCpus(cpus, options.num_threads); !bound.ok()) {
      LAMINA_LOG_ERROR("--cpus: {}", bound.message());
      return 2;
    }
    options.pin_threads = true;
  }
  lamina::Result<std::unique_ptr<lamina::ComputeNode>> node = lamina::ComputeNode::Create(options);
  if (!node.ok()) {
    LAMINA_LOG_ERROR("{}", node.status().message());
    return 1;
  }
  running_node = node->get();
  LAMINA_LOG_INFO("listening on {}", (*node)->address());
  return lamina::RunUntilAsked(
      leave_with_stdin, [] { running_node->Leave(); }, [] { running_node->Stop(); },
      [] { return running_node->Run(); });
}
