// From what a person calls a model to its files on this machine.
#pragma once

#include <string>

#include "base/status.h"
#include "hub/hub_cache.h"

namespace lamina {

// The path of the model's folder or GGUF file. `model` is a path or, if nothing is there, the name
// of a model in the cache (hub_name.h). What can be neither is returned as it is: whoever opens it
// says that it is not there.
//
// kNotFound if such a name is not in the cache, and kInvalidArgument if the snapshot has several
// GGUF files and none is named, or not the one that is named. Messages say what to type.
Result<std::string> FindModel(const std::string& model,
                              const HubCache& cache = HubCache::Default());

// Likewise for a model that a file names: a relative path starts at the folder of `file`. The path
// is absolute.
Result<std::string> FindModelBeside(const std::string& file, const std::string& model,
                                    const HubCache& cache = HubCache::Default());

// The path in the snapshot that a model is loaded from: the folder if it has a config.json, else a
// GGUF file. Errors as those of FindModel.
Result<std::string> ModelInSnapshot(const std::string& snapshot, const HubName& name);

}  // namespace lamina
