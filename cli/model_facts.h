// What is known of a model before its weights are read: for people who are about to serve it.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "model/model_config.h"

namespace lamina {

struct ModelFacts {
  std::string architecture;
  int64_t num_parameters = 0;
  int64_t weight_bytes = 0;  // of the files; 0: there are none
  // Not ok if some of the files with weights are not there, or their index cannot be read.
  Status weights;
};

// `path` is a folder or a GGUF file. Errors of TraceModel.
Result<ModelFacts> FactsOf(const ModelConfig& config, const std::string& path);

// For people: "596 M", "8.0 B".
std::string FormatParameters(int64_t count);
// For people, of files: "6.6 MB", "16.1 GB".
std::string FormatFileBytes(int64_t bytes);

}  // namespace lamina
