// Which architectures lamina has forward code for. To add one: write its forward code beside
// llama.cc, with a function that reads its keys of config.json, and add a line to the table in
// registry.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json_keys.h"
#include "model/model_config.h"
#include "model/tracer.h"

namespace lamina {

// Forward code: from a row's token and position to its logits. It only records operators
// (model/tracer.h).
using ForwardFunction = Tensor (*)(const ModelConfig& config, Tensor tokens, Tensor positions);

// Reads what the family's config.json says about sizes and layers, with the family's defaults. What
// is wrong, or is unknown and would change the result, is kept in the status of `keys`.
using ReadFunction = void (*)(JsonKeys& keys, ModelConfig& config);

struct Architecture {
  std::string_view name;  // as in "architectures" of config.json
  ReadFunction read = nullptr;
  ForwardFunction forward = nullptr;
  // Of a model that also reads images, of which lamina runs the language model: the keys that
  // `read` finds stand in "text_config" there, and these are what absent ones mean. Empty: all keys
  // are on top.
  std::string_view text_defaults = {};
};

// All of them. Thread: any.
std::span<const Architecture> Architectures();

// Null if there is none of that name.
const Architecture* FindArchitecture(std::string_view name);

// "A, B", for messages.
std::string ArchitectureNames();

// Why there is no forward code for an architecture that people know, and what to use instead. Empty
// for others.
std::string_view WhyNoForwardCode(std::string_view name);

}  // namespace lamina
