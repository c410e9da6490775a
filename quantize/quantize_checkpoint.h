// Makes a checkpoint with quantized weights of one with plain ones: a folder of Hugging Face's
// layout in the format of compressed-tensors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "base/worker_team.h"
#include "quantize/round_to_nearest.h"

namespace lamina {

struct QuantizeOptions {
  std::string model_dir;
  std::string out_dir;  // is made
  QuantizedScheme scheme;
  // Called after each tensor; may be null.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress;
};

struct QuantizedCounts {
  int64_t num_quantized = 0;  // matrices
  int64_t bytes_before = 0;   // of all tensors
  int64_t bytes_after = 0;
};

// Quantizes the matrices of all linear layers and experts, but for the head and routers. What else
// is in the folder is copied, except for other forms of the weights. The new folder gets its name
// when it is complete. kUnimplemented for a GGUF file; kInvalidArgument if out_dir is there
// already, the weights are quantized already, or a layer's inputs are no multiple of the group;
// errors of reading the model.
Result<QuantizedCounts> QuantizeCheckpoint(const QuantizeOptions& options, WorkerTeam& team);

}  // namespace lamina
