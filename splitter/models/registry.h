// Which architectures lamina can run. To add one: write its forward code beside llama.cc, add a line to the table in registry.cc, and teach
// ModelConfig::Parse its keys.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "splitter/model_config.h"
#include "splitter/tracer.h"

namespace lamina {

// Forward code: logits of a row from its token and position.
using ForwardFunction = Tensor (*)(const ModelConfig& config, Tensor tokens, Tensor positions);

struct Architecture {
  std::string_view name;  // as in "architectures" of config.json
  ForwardFunction forward = nullptr;
};

std::span<const Architecture> Architectures();

// Null if there is none of that name.
const Architecture* FindArchitecture(std::string_view name);

// "A, B", for messages.
std::string ArchitectureNames();

}  // namespace lamina
