#include <fmt/format.h>

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/worker_team.h"
#include "cli/commands.h"
#include "cli/progress_line.h"
#include "hub/find_model.h"
#include "quantize/commands.h"
#include "quantize/pack_model.h"

namespace lamina {
namespace {

struct PackArguments {
  PackOptions options;
  int num_threads = 0;
};

Status Pack(PackArguments arguments) {
  PackOptions& options = arguments.options;
  LAMINA_ASSIGN_OR_RETURN(options.model, FindModel(options.model));
  WorkerTeam team(arguments.num_threads);
  auto line = std::make_unique<ProgressLine>();
  options.on_progress = [&line](int64_t done, int64_t all) {
    line->Show(fmt::format("{:.1f} of {:.1f} MB", static_cast<double>(done) * 1e-6,
                           static_cast<double>(all) * 1e-6));
  };
  const TimePoint start = Clock::now();
  const Result<PackedCounts> counts = PackModel(options, team);
  line.reset();
  LAMINA_RETURN_IF_ERROR(counts.status());
  fmt::print("{} matrices, {:.1f} MB in {:.1f} s: {}\n", counts->num_matrices,
             static_cast<double>(counts->bytes) * 1e-6, SecondsSince(start), counts->path);
  return OkStatus();
}

}  // namespace

void RegisterPack(CLI::App& app) {
  auto arguments = std::make_shared<PackArguments>();
  CLI::App* command = app.add_subcommand(
      "pack", "Keep a model's weights as the CPU's kernels read them, so that nodes start sooner");
  command->add_option("MODEL", arguments->options.model, "The model's folder, GGUF file or name")
      ->required();
  command
      ->add_option("--tensor-parallel-size", arguments->options.num_ranks,
                   "For compute nodes that share each layer among so many")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--threads", arguments->num_threads, "0: one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->footer(
      "Writes MODEL/weights.packed, or FILE.gguf.packed, which is as large as the weights. Nodes\n"
      "with that path read it instead of packing the weights anew. After a change of the model it\n"
      "is not used until it is made again. GPUs do not use it.\n"
      "Example:\n  lamina pack model.gguf && lamina serve model.gguf");
  OnRun(*command, "lamina", [arguments] { return Pack(*arguments); });
}

}  // namespace lamina
