// The program lamina-compute-node, which holds the weights and runs slices.
#include <CLI/CLI.hpp>

#include <string>

#include "base/units.h"
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
  std::string interval_text, memory = "0";
  CLI::Option* const interval =
      app.add_option(
             "--offload-interval", interval_text,
             "of every so many slices in a row, the weights of the last lie on a disk until "
             "they are needed; auto: the manager says with each step how many")
          ->check(CLI::IsMember({"auto"}) | CLI::Range(1, 1 << 16));
  app.add_option(
         "--offload-memory", memory,
         "with auto: what the weights of slices may take in memory, such as 1GiB; 0: no limit")
      ->capture_default_str()
      ->needs(interval);
  app.add_option("--offload-num-in-group", offload.num_in_group,
                 "not of the last slice alone, but of the last so many")
      ->check(CLI::Range(1, 1 << 16))
      ->capture_default_str()
      ->needs(interval);
  app.add_option(
         "--offload-portion", offload.portion,
         "so much of the weights of each of these slices, in whole matrices; the rest stays")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str()
      ->needs(interval);
  app.add_option("--offload-folder", offload.folder,
                 "on that disk; not of modelled devices, whose weights come from their host")
      ->needs(interval);
  app.add_option("--offload-buffers", offload.buffers,
                 "so many of them have room in memory at a time")
      ->check(CLI::Range(1, 1 << 10))
      ->capture_default_str()
      ->needs(interval);
  app.add_option(
         "--offload-bus", offload.bus,
         "modelled devices: they come over the bus of this name, which all nodes of this host "
         "that name it share")
      ->needs(interval);
  app.add_option("--offload-gb-per-s", offload.gb_per_s, "read no faster than this; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->needs(interval);
  if (const std::optional<int> status = daemon.Prepare(argc, argv)) return *status;
  offload.is_auto = interval_text == "auto";
  if (!offload.is_auto && interval->count() > 0) offload.interval = std::stoi(interval_text);
  const lamina::Result<int64_t> parsed = lamina::ParseSize(memory);
  if (!parsed.ok()) {
    LAMINA_LOG_ERROR("--offload-memory: {}", parsed.status().message());
    return 2;
  }
  offload.memory_bytes = *parsed;
  if (offload.any() && offload.folder.empty() &&
      std::holds_alternative<lamina::HostCpu>(options.device)) {
    LAMINA_LOG_ERROR("--offload-interval: where do the weights lie? give --offload-folder");
    return 2;
  }
  return daemon.Run(lamina::ComputeNode::Create(options, offload));
}
