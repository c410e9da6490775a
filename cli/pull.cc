#include "hub/pull.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <string_view>

#include "base/clock.h"
#include "base/printable.h"
#include "base/units.h"
#include "cli/commands.h"
#include "cli/model_facts.h"
#include "cli/progress_line.h"

namespace lamina {
namespace {

struct PullArguments {
  std::string model, revision;
  std::vector<std::string> include;
  std::string hub = HubOptions().url;
  std::string ca_file;
};

// One line on a terminal; elsewhere, such as in a log, a line for each file.
class ShownPull {
 public:
  void Show(const PullProgress& progress) {
    if (isatty(STDERR_FILENO) == 0) {
      if (progress.number != shown_) {
        std::cerr << fmt::format("{} of {}: {}\n", progress.number, progress.num_files,
                                 Printable(progress.path));
      }
      shown_ = progress.number;
      return;
    }
    if (!line_.is_due()) return;
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (first_bytes_ < 0) first_bytes_ = progress.done_bytes;  // the rest was there already
    const double speed = static_cast<double>(progress.done_bytes - first_bytes_) / seconds;
    std::string left;
    if (speed > 0) {
      const double rest = static_cast<double>(progress.total_bytes - progress.done_bytes) / speed;
      left = fmt::format(", {:.0f} MB/s, {} left", speed / 1e6,
                         FormatDuration(std::chrono::seconds(static_cast<int64_t>(rest))));
    }
    line_.Show(fmt::format("{} of {}: {} of {}{}  {}", progress.number, progress.num_files,
                           FormatFileBytes(progress.done_bytes),
                           FormatFileBytes(progress.total_bytes), left,
                           Briefly(progress.path, 60)));
  }

 private:
  const TimePoint start_ = Clock::now();
  ProgressLine line_;
  int64_t first_bytes_ = -1;
  size_t shown_ = 0;
};

bool IsOffline() {
  const char* const offline = std::getenv("HF_HUB_OFFLINE");
  const std::string_view value = offline == nullptr ? "" : offline;
  return value == "1" || value == "true" || value == "TRUE" || value == "yes" || value == "on";
}

Status PullModel(const PullArguments& arguments) {
  const std::optional<HubName> name = HubName::Parse(arguments.model);
  if (!name)
    return InvalidArgument("'" + Printable(arguments.model) +
                           "' is not the name of a model, such as Qwen/Qwen3-0.6B, "
                           "Qwen/Qwen3-0.6B@REVISION or OWNER/NAME:Q4_K_M");
  PullOptions options;
  options.name = *name;
  if (!arguments.revision.empty()) {
    if (!IsPlainPath(arguments.revision))
      return InvalidArgument("--revision " + Printable(arguments.revision) + " cannot be one");
    options.name.revision = arguments.revision;
  }
  if (IsOffline())
    return InvalidArgument("HF_HUB_OFFLINE is set, so nothing is downloaded; unset it to pull");
  options.include = arguments.include;
  options.hub.url = arguments.hub;
  options.hub.token = HubToken();
  options.hub.https.ca_file = arguments.ca_file;
  auto shown = std::make_unique<ShownPull>();
  options.on_progress = [&shown](const PullProgress& progress) { shown->Show(progress); };
  const Result<PulledModel> pulled = Pull(options);
  shown.reset();
  LAMINA_RETURN_IF_ERROR(pulled.status());
  std::cout << fmt::format(
      "{} files, {}{}: {}\n", pulled->num_files, FormatFileBytes(pulled->num_bytes),
      pulled->downloaded_bytes == 0 ? ", which were there" : "", pulled->snapshot);
  if (options.include.empty())
    std::cout << "To serve it: lamina serve " << options.name.text() << std::endl;
  return OkStatus();
}

}  // namespace

void RegisterPull(CLI::App& app) {
  auto arguments = std::make_shared<PullArguments>();
  CLI::App* command =
      app.add_subcommand("pull", "Download a model into the cache of Hugging Face's tools");
  command
      ->add_option("MODEL", arguments->model,
                   "OWNER/NAME, OWNER/NAME@REVISION, or OWNER/NAME:Q4_K_M for one GGUF file of a "
                   "repository with several")
      ->required();
  command->add_option("--revision", arguments->revision,
                      "Branch, tag or commit; default: what the name says, or main");
  command
      ->add_option("--include", arguments->include,
                   "Only files that fit the pattern, such as '*.json'; may be given several times. "
                   "Default: weights, configuration, tokenizer and chat template")
      ->allow_extra_args(false);  // MODEL may stand behind it
  command->add_option("--hub", arguments->hub, "URL of the hub")
      ->envname("HF_ENDPOINT")
      ->capture_default_str();
  AddOption(*command, "--ca", arguments->ca_file,
            "File of CA certificates to trust instead of the system's");
  command->footer(
      "A model is looked for in HF_HUB_CACHE, HF_HOME/hub or ~/.cache/huggingface/hub. HF_TOKEN is "
      "sent to the hub for models that are private or gated.\n"
      "Examples:\n  lamina pull Qwen/Qwen3-0.6B\n  lamina pull "
      "Qwen/Qwen2.5-7B-Instruct-GGUF:Q4_K_M");
  OnRun(*command, "lamina", [arguments] { return PullModel(*arguments); });
}

}  // namespace lamina
