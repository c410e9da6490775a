// The program lamina-compute-node, which holds the weights and runs slices.
#include <CLI/CLI.hpp>

#include "compute_node/compute_node.h"
#include "node/daemon.h"

int main(int argc, char** argv) {
  lamina::NodeOptions options;
  options.name = "compute";
  lamina::OffloadOptions offload;
  lamina::Daemon daemon(
      "compute", "lamina-compute-node",
      "Compute node of lamina: holds the weights and runs the model slices between attention "
      "operators. The manager says which model.\n"
      "Example: lamina-compute-node --name c0 --listen 10.0.0.1:7100 --secret-file "
      "/etc/lamina/secret",
      options);
  CLI::App& app = daemon.app();
  CLI::Option* const interval =
      app.add_option(
             "--offload-interval", offload.interval,
             "of every so many slices in a row, the weights of the last lie on a disk until "
             "they are needed")
          ->check(CLI::Range(1, 1 << 16));
  app.add_option("--offload-folder", offload.folder,
                 "on that disk; not of modelled devices, whose weights come from their host")
      ->needs(interval);
  app.add_option("--offload-buffers", offload.buffers,
                 "so many of them have room in memory at a time")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str()
      ->needs(interval);
  app.add_option("--offload-gb-per-s", offload.gb_per_s, "read no faster than this; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->needs(interval);
  if (const std::optional<int> status = daemon.Prepare(argc, argv)) return *status;
  if (offload.any() && offload.folder.empty() &&
      std::holds_alternative<lamina::HostCpu>(options.device)) {
    LAMINA_LOG_ERROR("--offload-interval: where do the weights lie? give --offload-folder");
    return 2;
  }
  return daemon.Run(lamina::ComputeNode::Create(options, offload));
}
