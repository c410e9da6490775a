#include "hub/file_selection.h"

#include <fnmatch.h>

#include <algorithm>

#include "base/printable.h"
#include "gguf/gguf_model.h"
#include "hub/gguf_choice.h"

namespace lamina {
namespace {

bool IsAtRoot(const HubFile& file) { return file.path.find('/') == std::string::npos; }

bool IsSafetensors(const HubFile& file) { return file.path.ends_with(".safetensors"); }

// The same weights under the names of Mistral's own tools.
bool IsConsolidated(const HubFile& file) { return file.path.starts_with("consolidated"); }

// What stands beside weights and is small: configurations, vocabularies, templates, the license.
bool IsBesideWeights(const HubFile& file) {
  if (file.path.ends_with(".bin.index.json")) return false;  // of weights that are not taken
  constexpr std::string_view kEndings[] = {".json", ".jinja", ".model", ".tiktoken"};
  constexpr std::string_view kNames[] = {"merges.txt", "vocab.txt", "LICENSE", "LICENSE.txt",
                                         "LICENSE.md"};
  return std::ranges::any_of(
             kEndings, [&](std::string_view ending) { return file.path.ends_with(ending); }) ||
         std::ranges::find(kNames, file.path) != std::end(kNames);
}

// How a text's vector is made, in the form of sentence-transformers.
bool IsPooling(const HubFile& file) {
  return file.path.ends_with("_Pooling/config.json") && file.path.find('/') == file.path.rfind('/');
}

std::vector<HubFile> Matching(std::span<const HubFile> files,
                              std::span<const std::string> include) {
  std::vector<HubFile> selected;
  std::ranges::copy_if(files, std::back_inserter(selected), [&](const HubFile& file) {
    return std::ranges::any_of(include, [&](const std::string& pattern) {
      return fnmatch(pattern.c_str(), file.path.c_str(), 0) == 0;
    });
  });
  return selected;
}

Result<std::vector<HubFile>> SelectGguf(std::span<const HubFile> files, const HubName& name) {
  std::vector<std::string> paths;
  for (const HubFile& file : files) paths.push_back(file.path);
  HubName repository = name;
  repository.file.clear();
  LAMINA_ASSIGN_OR_RETURN(const GgufChoice choice,
                          ChooseGguf(GgufChoices(paths), name.file, repository.text()));
  std::vector<HubFile> selected;
  std::ranges::copy_if(files, std::back_inserter(selected), [&](const HubFile& file) {
    return std::ranges::find(choice.files, file.path) != choice.files.end();
  });
  return selected;
}

Status NothingToServe(std::span<const HubFile> files, const HubName& name) {
  const auto other = std::ranges::find_if(files, [](const HubFile& file) {
    return file.path.ends_with(".bin") || file.path.ends_with(".pt") ||
           file.path.ends_with(".pth") || file.path.ends_with(".onnx") ||
           file.path.ends_with(".h5");
  });
  return InvalidArgument(
      name.text() + " has neither safetensors nor GGUF files" +
      (other == files.end() ? "" : " but " + Printable(other->path) + ", which is not read") +
      "; look for a repository with a conversion, or choose files with --include");
}

}  // namespace

Result<std::vector<HubFile>> SelectFiles(std::span<const HubFile> files, const HubName& name,
                                         std::span<const std::string> include) {
  if (!include.empty()) {
    std::vector<HubFile> selected = Matching(files, include);
    if (!selected.empty()) return selected;
    return InvalidArgument("no file of " + name.text() + " fits --include " +
                           Printable(include.front()));
  }
  const bool has_plain = std::ranges::any_of(files, [](const HubFile& file) {
    return IsAtRoot(file) && IsSafetensors(file) && !IsConsolidated(file);
  });
  const bool has_safetensors = std::ranges::any_of(
      files, [](const HubFile& file) { return IsAtRoot(file) && IsSafetensors(file); });
  if (!name.file.empty() || !has_safetensors) {
    const bool has_gguf =
        std::ranges::any_of(files, [](const HubFile& file) { return IsGgufPath(file.path); });
    if (has_gguf || !name.file.empty()) return SelectGguf(files, name);
    return NothingToServe(files, name);
  }
  std::vector<HubFile> selected;
  std::ranges::copy_if(files, std::back_inserter(selected), [&](const HubFile& file) {
    if (IsPooling(file)) return true;
    if (!IsAtRoot(file)) return false;
    return IsSafetensors(file) ? !has_plain || !IsConsolidated(file) : IsBesideWeights(file);
  });
  return selected;
}

}  // namespace lamina
