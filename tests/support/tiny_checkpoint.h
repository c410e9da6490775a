// Small random checkpoints in the Hugging Face layout, for tests that need other shapes than
// models/tiny-stories has.
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/temporary_folder.h"

namespace lamina {

struct TinyCheckpointOptions {
  int vocab_size = 96;
  int hidden_size = 32;
  int intermediate_size = 48;
  int num_layers = 3;
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 8;  // num_heads * head_dim need not be hidden_size
  int max_positions = 256;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied_head = false;
  std::string dtype = "BF16";         // BF16, F16 or F32: what the weights are stored as
  std::string rope_scaling = "null";  // JSON
  int eos_token = 2;                  // -1: none
  // More than one: model-0000i-of-0000n.safetensors and an index.
  int num_shards = 1;
  uint64_t seed = 1;
};

// A directory with config.json and the weights, which is removed with the object. The weights have
// about the scale of a trained model's, so that attention is neither uniform nor one-hot; the bits
// depend on the options only.
class TinyCheckpoint {
 public:
  explicit TinyCheckpoint(const TinyCheckpointOptions& options);

  const std::string& dir() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

}  // namespace lamina
