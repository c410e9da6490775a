// lamina-bench: what `lamina bench ...` runs. Composition root.
#include <csignal>

#include <CLI/CLI.hpp>

#include "base/descriptors.h"
#include "base/log.h"
#include "bench/dollar/dollar_command.h"
#include "bench/kernels/kernels.h"
#include "bench/modelled.h"
#include "bench/paper_tables/paper_tables.h"
#include "bench/profile/profile_command.h"
#include "bench/serve/serve_command.h"
#include "bench/throughput.h"
#include "bench/transport/transport.h"
#include "cli/plan_command.h"
#include "cli/simulate_command.h"
#include "splitter/protobuf_log.h"

int main(int argc, char** argv) {
  lamina::InitLogging("bench");
  lamina::TakeProtobufLog();
  lamina::RaiseDescriptorLimit();
  spdlog::set_level(spdlog::level::warn);
  std::signal(SIGPIPE, SIG_IGN);
  CLI::App app(
      "Benchmarks of lamina. Ratios are taken against a limit or a peer measured in the same run.",
      "lamina bench");
  app.require_subcommand(1);
  int exit_status = 0;
  lamina::RegisterModelled(app, exit_status);
  lamina::RegisterKernels(app, exit_status);
  lamina::RegisterSimulate(app, exit_status);
  lamina::RegisterThroughput(app, exit_status);
  lamina::RegisterBenchServe(app, exit_status);
  lamina::RegisterBenchDollar(app, exit_status);
  lamina::RegisterTransport(app, exit_status);
  lamina::RegisterPlan(app, exit_status);
  lamina::RegisterProfile(app, exit_status);
  lamina::RegisterPaperTables(app, exit_status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return exit_status;
}
