// A model that is known from an exported program alone.
#pragma once

#include <string>

#include "base/status.h"
#include "model/model_config.h"

namespace lamina {

// In the checkpoint's folder.
inline constexpr const char* kImportedGraphFile = "lamina_graph.json";

// Imports the program in `text`, the file at `path`: the graph and what follows from it (sizes,
// layers, heads, windows) go into `config`. Errors as ExportedProgram::Parse and ImportProgram;
// kUnimplemented if attentions differ in heads or in their size.
Status ReadImportedModel(const std::string& text, const std::string& path, ModelConfig& config);

}  // namespace lamina
