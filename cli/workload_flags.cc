#include "cli/workload_flags.h"

#include "cli/commands.h"
#include "cli/number_checks.h"

namespace lamina {

void AddWorkloadFlags(CLI::App& command, WorkloadOptions& options) {
  AddOption(command, "--dataset-name", options.dataset_name,
            "auto | random | azure | burstgpt | mooncake | sharegpt | alpaca; auto: by the file")
      ->check(
          CLI::IsMember({"auto", "random", "azure", "burstgpt", "mooncake", "sharegpt", "alpaca"}));
  AddOption(command, "--dataset-path", options.dataset_path, "File of the trace or dataset");
  CLI::Option* input =
      AddOption(command, "--random-input-len", options.input_len,
                "Tokens of a random prompt: 512, uniform:LOW:HIGH or lognormal:MEAN:CV");
  CLI::Option* output =
      AddOption(command, "--random-output-len", options.output_len, "Likewise of its answer");
  AddOption(command, "--lengths-of", options.lengths_of,
            "Random lengths, log-normal, as published of azure-conv, azure-code, mooncake-conv, "
            "sharegpt or alpaca")
      ->excludes(input)
      ->excludes(output);
  AddOption(command, "--num-prompts", options.num_prompts, "Requests; 0: all of the trace")
      ->transform(SizeAsNumber())
      ->check(CountThatFits(kMaxRequests));
  AddOption(command, "--output-len", options.output_len_override,
            "Tokens of every answer; 0: the dataset's")
      ->transform(SizeAsNumber())
      ->check(NumberIn(0, static_cast<double>(kMaxRequestTokens)));
  AddOption(command, "--max-total-len", options.max_total_len,
            "Leave out requests whose prompt and answer are longer; 0: none")
      ->transform(SizeAsNumber())
      ->check(CLI::NonNegativeNumber);
  AddOption(command, "--request-rate", options.request_rate,
            "Requests per second | inf: all at once | trace: at the trace's own times");
  AddOption(command, "--rate-scale", options.rate_scale, "Speeds the trace's own times up")
      ->check(AboveZero());
  AddOption(command, "--burstiness", options.burstiness,
            "Shape of the gamma distribution of gaps: 1 Poisson, below 1 bursts, inf constant");
  AddOption(command, "--ramp-up-strategy", options.ramp,
            "none | linear | exponential, from one rate to another")
      ->check(CLI::IsMember({"none", "linear", "exponential"}));
  AddOption(command, "--ramp-up-start-rps", options.ramp_start,
            "First rate of the ramp, in requests per second")
      ->check(NumberAtLeast(0));
  AddOption(command, "--ramp-up-end-rps", options.ramp_end, "Last rate of the ramp")
      ->check(NumberAtLeast(0));
  AddOption(command, "--seed", options.seed, "Of lengths, texts and arrivals");
}

}  // namespace lamina
