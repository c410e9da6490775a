// The program lamina-compute-node, which holds the weights and runs slices.
#include "compute_node/compute_node.h"
#include "node/daemon.h"
#include "node/offload_flags.h"

int main(int argc, char** argv) {
  lamina::NodeOptions options;
  options.name = "compute";
  lamina::Daemon daemon(
      "compute", "lamina-compute-node",
      "Compute node of lamina: holds the weights and runs the model slices between attention "
      "operators. The manager says which model.\n"
      "Example: lamina-compute-node --name c0 --listen 10.0.0.1:7100 --secret-file "
      "/etc/lamina/secret",
      options);
  const lamina::OffloadFlags weights(daemon.app(), lamina::OffloadedPart::kWeights);
  const lamina::OffloadFlags own_kv(daemon.app(), lamina::OffloadedPart::kOwnKv);
  if (const std::optional<int> status = daemon.Prepare(argc, argv)) return *status;
  const bool needs_folder = std::holds_alternative<lamina::HostCpu>(options.device);
  const lamina::Result<lamina::OffloadOptions> offload = weights.Parse(needs_folder);
  const lamina::Result<lamina::OffloadOptions> kv = own_kv.Parse(needs_folder);
  for (const lamina::Status& status : {offload.status(), kv.status()}) {
    if (status.ok()) continue;
    LAMINA_LOG_ERROR("{}", status.message());
    return 2;
  }
  return daemon.Run(lamina::ComputeNode::Create(options, {*offload, *kv}));
}
