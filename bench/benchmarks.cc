#include "bench/benchmarks.h"

#include "bench/dollar/dollar_command.h"
#include "bench/grammar.h"
#include "bench/kernels/kernels.h"
#include "bench/modelled.h"
#include "bench/paper_tables/paper_tables.h"
#include "bench/profile/profile_command.h"
#include "bench/record/offload_command.h"
#include "bench/record/record_command.h"
#include "bench/recovery/recovery_command.h"
#include "bench/serve/serve_command.h"
#include "bench/throughput.h"
#include "bench/transport/transport.h"
#include "cli/commands.h"

namespace lamina {

void RegisterBench(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "bench",
      "Measure. Ratios are taken against a limit or a peer that is measured in the same run");
  command->require_subcommand(1);
  command->footer("Example:\n  lamina bench transport --help");
  RegisterModelled(*command);
  RegisterKernels(*command);
  RegisterThroughput(*command);
  RegisterBenchServe(*command);
  RegisterBenchDollar(*command);
  RegisterRecord(*command);
  RegisterOffload(*command);
  RegisterRecovery(*command);
  RegisterBenchGrammar(*command);
  RegisterTransport(*command);
  RegisterProfile(*command);
  RegisterPaperTables(*command);
  QuietWhileItRuns(*command);  // clusters that it starts would log between the figures
}

}  // namespace lamina
