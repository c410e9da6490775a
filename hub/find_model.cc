#include "hub/find_model.h"

#include <filesystem>
#include <optional>

#include "base/path_beside.h"
#include "gguf/gguf_model.h"
#include "hub/gguf_choice.h"

namespace lamina {

namespace fs = std::filesystem;

Result<std::string> ModelInSnapshot(const std::string& snapshot, const HubName& name) {
  std::error_code error;
  if (name.file.empty() && fs::exists(snapshot + "/config.json", error)) return snapshot;
  const std::vector<GgufChoice> choices = GgufChoices(FilesBelow(snapshot));
  if (choices.empty()) {
    return NotFound(
        snapshot +
        (name.file.empty() ? " has neither a config.json nor a GGUF file" : " has no GGUF file") +
        "; to complete it: lamina pull " + name.text());
  }
  HubName repository = name;
  repository.file.clear();
  const Result<GgufChoice> chosen = ChooseGguf(choices, name.file, repository.text());
  if (chosen.ok()) return snapshot + "/" + chosen->files.front();
  if (name.file.empty()) return chosen.status();
  return NotFound(chosen.status().message() +
                  " in the cache; to download another one: lamina pull " + name.text());
}

Result<std::string> FindModel(const std::string& model, const HubCache& cache) {
  std::error_code error;
  if (fs::exists(model, error)) return model;
  const std::optional<HubName> name = HubName::Parse(model);
  if (!name || IsGgufPath(name->name)) return model;
  const Result<std::string> snapshot = cache.Snapshot(*name);
  if (!snapshot.ok())
    return NotFound("there is no file or folder " + model + ", and " + snapshot.status().message());
  return ModelInSnapshot(*snapshot, *name);
}

Result<std::string> FindModelBeside(const std::string& file, const std::string& model,
                                    const HubCache& cache) {
  const std::string beside = PathBeside(file, model);
  std::error_code ignored;
  if (fs::exists(beside, ignored)) return beside;
  const Result<std::string> found = FindModel(model, cache);
  // What FindModel gives back as it is was no name, so it is a path where nothing is.
  return found.ok() && *found == model ? beside : found;
}

}  // namespace lamina
