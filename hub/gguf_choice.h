// Which of a repository's GGUF files is meant: such repositories hold one model in many
// quantizations, each a file or several shards.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

struct GgufChoice {
  // What distinguishes it: "Q4_K_M" of "model-Q4_K_M.gguf", else the name without ".gguf".
  std::string label;
  std::vector<std::string> files;  // its paths in the repository; shards in their order
};

// The models among `paths`, sorted by label. Files that are no models of their own are left out:
// projectors for images and calibration data.
std::vector<GgufChoice> GgufChoices(std::span<const std::string> paths);

// The choice that `wanted` names, by label without regard to case or by the path of a file; the
// only one if it is "". kInvalidArgument names the labels if there are several or none fits.
// `model` is how the person who chooses calls the repository.
Result<GgufChoice> ChooseGguf(std::span<const GgufChoice> choices, const std::string& wanted,
                              const std::string& model);

}  // namespace lamina
