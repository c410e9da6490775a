// Which files of a repository a download takes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "hub/hub_answers.h"
#include "hub/hub_name.h"

namespace lamina {

// With `include`, the files whose paths fit one of these patterns, in which '*' also stands for
// '/'. Without, what serving takes: of a repository with safetensors these, all JSON files,
// templates and vocabularies at its root, and what says how vectors of texts are made; of one with
// GGUF files that which name.file chooses.
//
// kInvalidArgument if nothing fits, no GGUF file is chosen though there are several, or the weights
// are of a kind that lamina does not read. Messages say what to type.
Result<std::vector<HubFile>> SelectFiles(std::span<const HubFile> files, const HubName& name,
                                         std::span<const std::string> include);

}  // namespace lamina
