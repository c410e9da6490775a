// Reads models that lamina has no forward code for: all that is known of them is an exported
// program.
#pragma once

#include <string>

#include "base/status.h"
#include "model/model_config.h"

namespace lamina {

// Name of the exported program in the checkpoint's folder.
inline constexpr const char* kImportedGraphFile = "lamina_graph.json";

// Imports the program in `text`, the contents of the file at `path`, and sets `config.imported` and
// what follows from the graph: sizes, layers, heads, windows. kInvalidArgument if the file or a
// size in it is wrong, kUnimplemented if an operator cannot be mapped or if attentions differ in
// their heads or scale; both name the place. `config` is partly written then.
Status ReadImportedModel(const std::string& text, const std::string& path, ModelConfig& config);

}  // namespace lamina
