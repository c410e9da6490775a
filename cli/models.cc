#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/json_text.h"
#include "base/printable.h"
#include "cli/commands.h"
#include "cli/model_facts.h"
#include "hub/find_model.h"
#include "hub/gguf_choice.h"
#include "model/model_config.h"
#include "text/tokenizer.h"

namespace lamina {
namespace {

struct ListedModel {
  std::string name;  // what `lamina serve` takes
  std::string commit, path;
  ModelFacts facts;
  Status servable;  // why it cannot be served
};

ListedModel Examine(const CachedModel& cached, const HubName& name) {
  ListedModel model{name.text(), cached.commit, "", {}, OkStatus()};
  const auto examine = [&]() -> Status {
    LAMINA_ASSIGN_OR_RETURN(model.path, ModelInSnapshot(cached.snapshot, name));
    LAMINA_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(model.path));
    LAMINA_ASSIGN_OR_RETURN(model.facts, FactsOf(config, model.path));
    LAMINA_RETURN_IF_ERROR(model.facts.weights);
    if (model.facts.weight_bytes == 0)
      return NotFound("it has no model.safetensors; to complete it: lamina pull " + model.name);
    return CheckTokenizer(model.path);
  };
  model.servable = examine();
  return model;
}

// A snapshot is one model, or as many as it has GGUF files.
std::vector<ListedModel> ListModels(const HubCache& cache) {
  std::vector<ListedModel> models;
  for (const CachedModel& cached : cache.List()) {
    const std::vector<std::string> files = FilesBelow(cached.snapshot);
    const std::vector<GgufChoice> choices = GgufChoices(files);
    const bool is_folder = std::ranges::find(files, "config.json") != files.end();
    if (is_folder || choices.size() <= 1) models.push_back(Examine(cached, cached.name));
    if (choices.size() <= 1 && !is_folder) continue;
    for (const GgufChoice& choice : choices) {
      HubName name = cached.name;
      const bool is_unique = std::ranges::count(choices, choice.label, &GgufChoice::label) == 1;
      name.file = is_unique ? choice.label : choice.files.front();
      models.push_back(Examine(cached, name));
    }
  }
  return models;
}

void PrintJson(const std::vector<ListedModel>& models, const HubCache& cache) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ListedModel& model : models) {
    nlohmann::ordered_json entry = {{"name", model.name},
                                    {"commit", model.commit},
                                    {"path", model.path},
                                    {"servable", model.servable.ok()}};
    if (!model.facts.architecture.empty()) {
      entry["architecture"] = model.facts.architecture;
      entry["parameters"] = model.facts.num_parameters;
      entry["weight_bytes"] = model.facts.weight_bytes;
    }
    if (!model.servable.ok()) entry["reason"] = model.servable.message();
    list.push_back(std::move(entry));
  }
  std::cout << JsonText({{"cache", cache.root()}, {"models", list}}, 2) << std::endl;
}

void PrintTable(const std::vector<ListedModel>& models, const HubCache& cache) {
  if (models.empty()) {
    std::cout << "There are no models in " << cache.root()
              << "; to download one: lamina pull OWNER/NAME" << std::endl;
    return;
  }
  size_t width = 5;
  for (const ListedModel& model : models) width = std::max(width, model.name.size());
  std::cout << fmt::format("{:<{}}  {:>10}  {:>9}  {:<8}  {}\n", "model", width, "parameters",
                           "weights", "commit", "architecture");
  for (const ListedModel& model : models) {
    const bool is_known = !model.facts.architecture.empty();
    std::cout << fmt::format(
        "{:<{}}  {:>10}  {:>9}  {:<8}  {}\n", model.name, width,
        is_known ? FormatParameters(model.facts.num_parameters) : "-",
        is_known ? FormatFileBytes(model.facts.weight_bytes) : "-", model.commit.substr(0, 8),
        model.servable.ok() ? model.facts.architecture
                            : "cannot be served: " + Briefly(model.servable.message()));
  }
  std::cout << "In " << cache.root() << std::endl;
}

Status ShowModels(bool json) {
  const HubCache cache = HubCache::Default();
  const std::vector<ListedModel> models = ListModels(cache);
  if (json) {
    PrintJson(models, cache);
  } else {
    PrintTable(models, cache);
  }
  return OkStatus();
}

}  // namespace

void RegisterModels(CLI::App& app) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "models", "List the models in the cache of Hugging Face's tools, and what can be served");
  command->add_flag("--json", *json, "As JSON");
  command->footer("Example:\n  lamina models");
  QuietWhileItRuns(*command);
  OnRun(*command, "lamina", [json] { return ShowModels(*json); });
}

}  // namespace lamina
