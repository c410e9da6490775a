// The program lamina-memory-node, which holds the KV cache and computes attention.
#include <CLI/CLI.hpp>

#include "base/units.h"
#include "memory_node/memory_node.h"
#include "node/daemon.h"
#include "node/offload_flags.h"

int main(int argc, char** argv) {
  lamina::MemoryNodeOptions options;
  options.name = "memory";
  lamina::Daemon daemon("memory", "lamina-memory-node",
                        "Memory node of lamina: keeps the KV cache and runs attention where it "
                        "lies.\nExample: lamina-memory-node --name m0 --listen 10.0.0.2:7101 "
                        "--memory 64GiB --secret-file /etc/lamina/secret",
                        options);
  std::string memory, host_memory = "0";
  daemon.app().add_option("--memory", memory, "memory for the KV cache, such as 4GiB")->required();
  daemon.app()
      .add_option("--host-memory", host_memory,
                  "so much of it lies in the host's memory, pinned, where it is read across PCIe: "
                  "for more KV than a GPU has room for")
      ->capture_default_str();
  const lamina::OffloadFlags flags(daemon.app(), lamina::OffloadedPart::kKv);
  if (const std::optional<int> status = daemon.Prepare(argc, argv)) return *status;
  for (const auto& [option, text, bytes] :
       {std::tuple{"--memory", &memory, &options.memory_bytes},
        std::tuple{"--host-memory", &host_memory, &options.host_memory_bytes}}) {
    const lamina::Result<int64_t> parsed = lamina::ParseSize(*text);
    if (!parsed.ok()) {
      LAMINA_LOG_ERROR("{}: {}", option, parsed.status().message());
      return 2;
    }
    *bytes = *parsed;
  }
  const lamina::Result<lamina::OffloadOptions> offload = flags.Parse(
      /*needs_folder=*/!std::holds_alternative<lamina::CudaGpu>(options.device));
  if (!offload.ok()) {
    LAMINA_LOG_ERROR("{}", offload.status().message());
    return 2;
  }
  options.offload = *offload;
  return daemon.Run(lamina::MemoryNode::Create(options));
}
