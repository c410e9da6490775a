// How processes of a cluster prove to each other that they belong to it, and notice that one is
// gone.
#pragma once

#include <string>

#include "base/status.h"
#include "manager/cluster_config.h"
#include "transport/control_channel.h"

namespace lamina {

// Reads the secret and the certificates. Errors name the file.
Result<ControlOptions> ControlOptionsOf(const ClusterConfig& config, const std::string& hello);

}  // namespace lamina
