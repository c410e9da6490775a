// Makes the packed file of a model (compute_node/packed_file.h), which nodes read when they start.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "base/worker_team.h"

namespace lamina {

struct PackOptions {
  std::string model;  // a folder or a GGUF file
  // For nodes that share each layer among so many ranks. 1: for nodes that hold whole layers.
  int num_ranks = 1;
  // Called after each matrix; may be null.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress;
};

struct PackedCounts {
  int64_t num_matrices = 0;
  int64_t bytes = 0;  // of their panels
  std::string path;
};

// Packs all matrices that IsPackable lets be kept. The file takes the place of an older one when it
// is complete; nodes that read that one do so to its end. kTryAgain if the model is being packed
// already; kInvalidArgument if the file cannot be written or the model cannot be divided so,
// kNotFound if there is nothing to pack; errors of reading the model.
Result<PackedCounts> PackModel(const PackOptions& options, WorkerTeam& team);

}  // namespace lamina
