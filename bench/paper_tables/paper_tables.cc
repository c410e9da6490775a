#include "bench/paper_tables/paper_tables.h"

#include <filesystem>
#include <iostream>
#include <memory>

#include "base/output_file.h"
#include "cli/commands.h"

namespace lamina {
namespace {

Status WriteReport(const std::string& path, const std::vector<Section>& sections) {
  return WriteOutput(path, std::filesystem::path(path).extension() == ".html"
                               ? ToHtml(sections)
                               : ToMarkdown(sections))
      .WithContext("--out");
}

Status MakeReport(const PaperTablesOptions& options, const std::vector<std::string>& files) {
  LAMINA_ASSIGN_OR_RETURN(const std::vector<Section> sections, MakePaperTables(options));
  if (files.empty()) std::cout << ToMarkdown(sections);
  for (const std::string& file : files) LAMINA_RETURN_IF_ERROR(WriteReport(file, sections));
  return OkStatus();
}

}  // namespace

Result<std::vector<Section>> MakePaperTables(const PaperTablesOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(const DeviceCatalog catalog, DeviceCatalog::Load(options.catalog));
  std::vector<Result<Section>> made;
  made.push_back(TableOfPrices(catalog));
  made.push_back(TableOfBandwidths(catalog, options.models));
  made.push_back(FigureOfTheory(catalog, options.models));
  made.push_back(FiguresOfThroughput(catalog, options.models));
  made.push_back(PairsOfEqualCost(catalog, options));
  made.push_back(SelectN(catalog, options.models));
  made.push_back(Pie(options));
  if (!options.profiles.empty()) made.push_back(PredictedProfiles(catalog, options.profiles));
  std::vector<Section> sections;
  for (Result<Section>& section : made) {
    LAMINA_RETURN_IF_ERROR(section.status());
    sections.push_back(std::move(*section));
  }
  return sections;
}

void RegisterPaperTables(CLI::App& app) {
  auto options = std::make_shared<PaperTablesOptions>();
  auto files = std::make_shared<std::vector<std::string>>();
  CLI::App* command = app.add_subcommand(
      "paper-tables",
      "The Lamina papers' tables and ranges from the cost model, beside the printed ones");
  command->footer("Example: lamina bench paper-tables --traces traces --out paper-tables.html");
  command->add_option("--catalog", options->catalog, "devices at the papers' prices")
      ->capture_default_str();
  command->add_option("--models", options->models, "folder with the papers' models")
      ->capture_default_str();
  command->add_option("--traces", options->traces,
                      "folder with azure_llm_2023_conv.csv, azure_llm_2023_code.csv and "
                      "mooncake_conversation.jsonl; lengths with their published "
                      "means otherwise");
  command->add_option(
      "--profiles", options->profiles,
      "folder with layer times in Vidur's format, to predict each model's from the others'");
  command->add_option(
      "--out", *files,
      "files to write, .html with pictures or .md; Markdown on the terminal otherwise");
  OnRun(*command, "lamina bench paper-tables",
        [options, files] { return MakeReport(*options, *files); });
}

}  // namespace lamina
