// The configuration of a model that is in a GGUF file, from the file's keys and from the names and
// shapes of its tensors.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "base/status.h"
#include "gguf/gguf_model.h"

namespace lamina {

// What a Hugging Face folder with this model would have as config.json. kUnimplemented for an
// architecture that lamina has no forward code for, or a key that changes the result and is not
// known; kInvalidArgument for keys that are missing or wrong. Messages name file and key.
Result<nlohmann::json> ConfigOfGguf(const GgufModel& file);

// The tensor rope_freqs.weight, by which converters express the rotary scaling of Llama 3:
// [head_dim / 2] divisors of the frequencies. Empty if there is none.
Result<std::vector<float>> RopeDivisorsOf(const GgufModel& file, int head_dim);

// ModelConfig's layer_bits and head_bits.
double LayerBitsOf(const GgufModel& file);
double HeadBitsOf(const GgufModel& file);

}  // namespace lamina
