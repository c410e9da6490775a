// The program lamina-compute-node, which holds the weights and runs slices.
#include "compute_node/compute_node.h"
#include "node/daemon.h"

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
  if (const std::optional<int> status = daemon.Prepare(argc, argv)) return *status;
  return daemon.Run(lamina::ComputeNode::Create(options));
}
