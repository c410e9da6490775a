#include "hub/gguf_choice.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "base/printable.h"
#include "gguf/gguf_model.h"

namespace lamina {
namespace {

// "Q4_K_M", "q8_0", "IQ3_XXS", "BF16", "F32", "MXFP4", "TQ1_0".
bool IsQuantization(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  for (const std::string_view kind : {"IQ", "TQ", "Q", "BF", "FP", "F", "MXFP"}) {
    if (upper.starts_with(kind) && upper.size() > kind.size() &&
        std::isdigit(static_cast<unsigned char>(upper[kind.size()])) != 0)
      return true;
  }
  return false;
}

// Of the model's name without shard and ".gguf". The quantization is its last part, separated by
// '-' or '.'.
std::string LabelOf(const std::string& model_name) {
  const size_t separator = model_name.find_last_of("-.");
  const std::string last =
      separator == std::string::npos ? model_name : model_name.substr(separator + 1);
  return IsQuantization(last) ? last : model_name;
}

std::string ListOf(std::span<const GgufChoice> choices) {
  constexpr size_t kMaxListed = 40;
  std::string list;
  for (const GgufChoice& choice : choices.first(std::min(choices.size(), kMaxListed)))
    list += (list.empty() ? "" : ", ") + Printable(choice.label);
  return choices.size() > kMaxListed ? list + ", ..." : list;
}

bool IsMeant(const GgufChoice& choice, const std::string& wanted) {
  return strcasecmp(choice.label.c_str(), wanted.c_str()) == 0 ||
         std::ranges::find(choice.files, wanted) != choice.files.end();
}

}  // namespace

std::vector<GgufChoice> GgufChoices(std::span<const std::string> paths) {
  std::map<std::string, GgufChoice> by_model;  // by folder and name
  for (const std::string& path : paths) {
    if (!IsGgufPath(path)) continue;
    const std::string name = GgufModelName(path);
    if (name.starts_with("mmproj") || name.find("imatrix") != std::string::npos) continue;
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
    GgufChoice& choice = by_model[folder + name];
    choice.label = LabelOf(name);
    choice.files.push_back(path);
  }
  std::vector<GgufChoice> choices;
  for (auto& [model, choice] : by_model) {
    std::ranges::sort(choice.files);
    choices.push_back(std::move(choice));
  }
  std::ranges::stable_sort(choices, {}, &GgufChoice::label);
  return choices;
}

Result<GgufChoice> ChooseGguf(std::span<const GgufChoice> choices, const std::string& wanted,
                              const std::string& model) {
  std::vector<GgufChoice> meant;
  std::ranges::copy_if(choices, std::back_inserter(meant), [&](const GgufChoice& choice) {
    return wanted.empty() || IsMeant(choice, wanted);
  });
  if (meant.size() == 1) return meant.front();
  if (choices.empty()) return InvalidArgument(model + " has no GGUF file");
  if (meant.empty())
    return InvalidArgument(model + " has no GGUF file '" + Printable(wanted) +
                           "'; it has: " + ListOf(choices));
  if (wanted.empty())
    return InvalidArgument(model + " has several GGUF files; name one of them, such as " + model +
                           ":" + Printable(meant.front().label) + ": " + ListOf(choices));
  return InvalidArgument(model + " has several GGUF files '" + Printable(wanted) +
                         "'; name one by its path, such as " + model + ":" +
                         Printable(meant.front().files.front()));
}

}  // namespace lamina
