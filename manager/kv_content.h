// Whether K and V that another manager's nodes computed are what this one's would compute.
#pragma once

#include <cstdint>

#include "manager/cluster_config.h"
#include "splitter/topology.h"

namespace lamina {

// ConfigureMemory::kv_content of a memory node: a number that is another one for another
// checkpoint, also one that has taken the place of an earlier one in the same folder, and for other
// heads. Looks at the names, sizes and times of the folder's files, and into its config.json. Never
// 0.
uint64_t KvContent(const ClusterConfig& config, const Member& node);

}  // namespace lamina
