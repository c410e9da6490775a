#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/text_file.h"
#include "base/worker_team.h"
#include "cli/commands.h"
#include "cli/progress_line.h"
#include "hub/find_model.h"
#include "quantize/commands.h"
#include "quantize/perplexity.h"
#include "quantize/quantize_checkpoint.h"
#include "text/utf8.h"

namespace lamina {
namespace {

std::string Megabytes(int64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

Result<std::string> ReadText(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(std::string bytes, ReadTextFile(path, size_t{1} << 30));
  std::string text;
  TakeAllUtf8(bytes, text);
  return text;
}

Result<Perplexity> Measure(PerplexityOptions options, const std::string& text, WorkerTeam& team) {
  ProgressLine line;
  options.on_progress = [&line](int64_t done, int64_t all, double value) {
    line.Show(fmt::format("{} of {} tokens, perplexity {:.4f}", done, all, value));
  };
  return MeasurePerplexity(options, text, team);
}

struct QuantizeArguments {
  QuantizeOptions options;
  std::string scheme;
  std::string text;
  PerplexityOptions perplexity;
  int num_threads = 0;
};

Status Quantize(QuantizeArguments arguments) {
  QuantizeOptions& options = arguments.options;
  const std::optional<QuantizedScheme> scheme = SchemeNamed(arguments.scheme);
  if (!scheme) return InvalidArgument("--to " + arguments.scheme + ": expected " + SchemeNames());
  options.scheme = *scheme;
  LAMINA_ASSIGN_OR_RETURN(options.model_dir, FindModel(options.model_dir));
  std::string text;
  if (!arguments.text.empty()) {
    LAMINA_ASSIGN_OR_RETURN(text, ReadText(arguments.text));
  }
  WorkerTeam team(arguments.num_threads);
  auto line = std::make_unique<ProgressLine>();
  options.on_progress = [&line](int64_t done, int64_t all) {
    line->Show(fmt::format("{} of {}", Megabytes(done), Megabytes(all)));
  };
  const Result<QuantizedCounts> counts = QuantizeCheckpoint(options, team);
  line.reset();
  LAMINA_RETURN_IF_ERROR(counts.status());
  fmt::print("{} matrices in {}, {} instead of {}: {}\n", counts->num_quantized, arguments.scheme,
             Megabytes(counts->bytes_after), Megabytes(counts->bytes_before), options.out_dir);
  if (text.empty()) return OkStatus();
  double before = 0;
  for (const std::string& dir : {options.model_dir, options.out_dir}) {
    arguments.perplexity.model_dir = dir;
    LAMINA_ASSIGN_OR_RETURN(const Perplexity measured, Measure(arguments.perplexity, text, team));
    const std::string more =
        before == 0 ? "" : fmt::format(", {:+.2f} %", 100 * (measured.value() / before - 1));
    fmt::print("perplexity {:.4f}{}: {}\n", measured.value(), more, dir);
    before = measured.value();
  }
  return OkStatus();
}

struct PerplexityArguments {
  PerplexityOptions options;
  std::string text;
  int num_threads = 0;
  bool json = false;
};

Status ShowPerplexity(PerplexityArguments arguments) {
  PerplexityOptions& options = arguments.options;
  LAMINA_ASSIGN_OR_RETURN(options.model_dir, FindModel(options.model_dir));
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadText(arguments.text));
  WorkerTeam team(arguments.num_threads);
  LAMINA_ASSIGN_OR_RETURN(const Perplexity measured, Measure(options, text, team));
  if (arguments.json) {
    fmt::print("{{\"perplexity\": {}, \"negative_log_likelihood\": {}, \"tokens\": {}}}\n",
               measured.value(), measured.mean(), measured.num_tokens);
  } else {
    fmt::print("perplexity {:.4f} over {} tokens\n", measured.value(), measured.num_tokens);
  }
  return OkStatus();
}

void AddTextOptions(CLI::App& command, PerplexityOptions& options) {
  AddSetting(command, "--kv-dtype", kKvDTypeChoices, options.kv_dtype,
             "Element type of K and V while perplexity is measured: " + kKvDTypeChoices.listed());
  command
      .add_option("--context", options.context,
                  "Cut the text into pieces of so many tokens; 0: of 512, or of what the model has")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command.add_flag("--by-lines", options.by_lines, "Each line is a text of its own");
}

void AddThreads(CLI::App& command, int& num_threads) {
  command.add_option("--threads", num_threads, "0: one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
}

}  // namespace

void RegisterQuantize(CLI::App& app) {
  auto arguments = std::make_shared<QuantizeArguments>();
  CLI::App* command =
      app.add_subcommand("quantize", "Make a model's weights 4 or 8 bits wide, in a new folder");
  command->add_option("MODEL", arguments->options.model_dir, "The model's folder or name")
      ->required();
  command->add_option("--to", arguments->scheme, SchemeNames())->required();
  command->add_option("--out", arguments->options.out_dir, "The new folder")->required();
  command->add_option("--text", arguments->text,
                      "Measure the perplexity of this file before and after");
  AddTextOptions(*command, arguments->perplexity);
  AddThreads(*command, arguments->num_threads);
  command->footer(
      "Example:\n  lamina quantize models/tiny-stories --to w4g64 --out /tmp/tiny-w4 --by-lines "
      "\\\n"
      "    --text models/tiny-stories/held_out.txt");
  OnRun(*command, "lamina", [arguments] { return Quantize(*arguments); });
}

void RegisterPerplexity(CLI::App& app) {
  auto arguments = std::make_shared<PerplexityArguments>();
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  command
      ->add_option("MODEL", arguments->options.model_dir, "The model's folder, GGUF file or name")
      ->required();
  command->add_option("TEXT", arguments->text, "A file")->required();
  AddTextOptions(*command, arguments->options);
  AddThreads(*command, arguments->num_threads);
  command->add_flag("--json", arguments->json, "As JSON");
  command->footer(
      "Example:\n  lamina perplexity models/tiny-stories models/tiny-stories/held_out.txt "
      "--by-lines");
  OnRun(*command, "lamina", [arguments] { return ShowPerplexity(*arguments); });
}

}  // namespace lamina
