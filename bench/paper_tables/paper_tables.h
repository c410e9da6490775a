// `lamina bench paper-tables`: the tables and ranges of the Lamina papers from this code's cost
// model and planner, beside the printed ones.
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

// Where everything is read from.
struct PaperTablesOptions {
  std::string catalog = ShippedPath("configs/devices.yaml");
  // A folder with llama-13b, llama-33b, llama-65b and llama-3-70b.
  std::string models = ShippedPath("configs/models");
  // A folder with the traces of the second version; "": lengths with their published means.
  std::string traces;
  // A folder with measured layer times in Vidur's format: the second version's linear layers then
  // take these times, and PredictedProfiles is part of the report. "": the catalog's MFU, and no
  // such part.
  std::string profiles;
};

// One function for each of the papers' tables and figures. They return the errors of the files that
// they read, and kNotFound for a device that the catalog lacks.
//
// Table 1.
Result<Section> TableOfPrices(const DeviceCatalog& catalog);
// Table 3.
Result<Section> TableOfBandwidths(const DeviceCatalog& catalog, const std::string& models);
// Figure 1.
Result<Section> FigureOfTheory(const DeviceCatalog& catalog, const std::string& models);
// Figures 12, 13 and 17.
Result<Section> FiguresOfThroughput(const DeviceCatalog& catalog, const std::string& models);
// The second version: H100s and H20s against H100s.
Result<Section> PairsOfEqualCost(const DeviceCatalog& catalog, const PaperTablesOptions& options);
// Select-N: weights outside of memory.
Result<Section> SelectN(const DeviceCatalog& catalog, const std::string& models);
// Pie: layers of the KV cache outside of memory.
Result<Section> Pie(const PaperTablesOptions& options);
// Layer times of one model, predicted from those of others. In neither paper.
Result<Section> PredictedProfiles(const DeviceCatalog& catalog, const std::string& profiles);

// All of these, in their order.
Result<std::vector<Section>> MakePaperTables(const PaperTablesOptions& options);

// Adds the subcommand to `app`. A run that fails exits with kExitFailure.
void RegisterPaperTables(CLI::App& app);

}  // namespace lamina
