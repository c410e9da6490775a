// `lamina bench paper-tables`: the tables and ranges of the Lamina papers from this code's cost
// model and planner, beside what was printed.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/paper_tables/comparison.h"
#include "cli/shipped_files.h"
#include "cost/device_catalog.h"
#include "plan/plan_load.h"

namespace lamina {

struct PaperTablesOptions {
  std::string catalog = ShippedPath("configs/devices.yaml");
  // Folder with llama-13b, llama-33b, llama-65b, llama-3-70b.
  std::string models = ShippedPath("configs/models");
  // Folder with the traces of the second version; "": lengths with their published means.
  std::string traces;
  std::string profiles;  // folder with measured layer times; "": that section is left out
};

// One function for each of the paper's tables and figures.
// Table 1.
Result<Section> TableOfPrices(const DeviceCatalog& catalog);
// Table 3.
Result<Section> TableOfBandwidths(const DeviceCatalog& catalog, const std::string& models);
// Figure 1.
Result<Section> FigureOfTheory(const DeviceCatalog& catalog, const std::string& models);
// Figures 12, 13 and 17.
Result<Section> FiguresOfThroughput(const DeviceCatalog& catalog, const std::string& models);
// The second version.
Result<Section> PairsOfEqualCost(const DeviceCatalog& catalog, const PaperTablesOptions& options);
Result<Section> PredictedProfiles(const DeviceCatalog& catalog, const std::string& profiles);

Result<std::vector<Section>> MakePaperTables(const PaperTablesOptions& options);

void RegisterPaperTables(CLI::App& app);

}  // namespace lamina
