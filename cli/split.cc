#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "hub/find_model.h"
#include "model/model_config.h"
#include "splitter/slices.h"

namespace lamina {
namespace {

Status Split(const std::string& model, bool json) {
  LAMINA_ASSIGN_OR_RETURN(const std::string path, FindModel(model));
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(path));
  LAMINA_ASSIGN_OR_RETURN(Graph graph, TraceModel(config));
  LAMINA_ASSIGN_OR_RETURN(const SlicedModel sliced, SplitGraph(std::move(graph)));
  std::string text = json ? SlicesToJson(sliced, config) : DescribeSlices(sliced, config);
  if (!text.ends_with('\n')) text += '\n';
  std::cout << text;
  return OkStatus();
}

}  // namespace

void RegisterSplit(CLI::App& app) {
  auto model = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand(
      "split", "Show how a model is cut at its attentions, and what crosses the network");
  command->add_option("MODEL", *model, "The model's folder, GGUF file or name; no weights are read")
      ->required();
  command->add_flag("--json", *json, "As JSON");
  command->footer("Example:\n  lamina split models/tiny-stories");
  OnRun(*command, "lamina", [model, json] { return Split(*model, *json); });
}

}  // namespace lamina
