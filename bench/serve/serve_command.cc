#include "bench/serve/serve_command.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/output_file.h"
#include "base/units.h"
#include "bench/serve/request_bodies.h"
#include "bench/serve/serve_report.h"
#include "bench/serve/served_endpoint.h"
#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cli/output_options.h"
#include "cli/shipped_files.h"
#include "cli/workload_flags.h"

namespace lamina {
namespace {

struct ServeBenchOptions {
  std::string base_url = "http://127.0.0.1:8000";
  std::string backend = "openai";
  std::string endpoint;
  std::string api_key;
  std::string ca_file;
  std::string model;
  std::string tokenizer;
  std::string prompt_format = "text";
  int64_t vocab_size = 0;
  WorkloadOptions workload;
  int64_t max_concurrency = 0;
  int64_t num_warmups = 1;
  bool ignore_eos = false;
  double temperature = 0;
  std::string extra_body;
  std::string timeout = "10m";
  std::vector<std::string> goodput;
  std::vector<double> percentiles = {90, 99};
  std::vector<std::string> devices;
  std::string device_catalog = DefaultCatalog();
  double price_per_hour = 0;
  OutputFiles files;
  bool json = false;

  bool is_chat() const { return backend == "openai-chat"; }
  BodyOptions bodies() const {
    return {is_chat(),   prompt_format, vocab_size, ignore_eos,
            temperature, workload.seed, extra_body};
  }
};

// One line that says how the run goes: rewritten in place on a terminal, else printed every 10 s.
class ProgressLine {
 public:
  void Show(const LoadProgress& progress) {
    constexpr double kSecondsBetweenLines = 10;
    const bool ended = progress.completed + progress.failed == progress.total;
    if (!terminal_ && progress.seconds < next_) return;
    next_ = progress.seconds + kSecondsBetweenLines;
    const double rate =
        static_cast<double>(progress.output_tokens) / std::max(1e-3, progress.seconds);
    std::cerr
        << (terminal_ ? "\r\033[K" : "")
        << fmt::format(
               "{:.0f} s: {} of {} requests done, {} in flight, {} failed, {:.0f} output tokens/s",
               progress.seconds, progress.completed, progress.total, progress.in_flight,
               progress.failed, rate)
        << (!terminal_ || ended ? "\n" : "") << std::flush;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  double next_ = 10;
};

constexpr int64_t kMaxWarmups = 10000;

// Tokens of all prompts together: as texts they take 2 to 3 GB.
constexpr int64_t kMaxPromptTokens = 500'000'000;

// All bodies are made before the clock starts, and are held in memory until the end.
Status CheckSize(const RequestTrace& trace) {
  int64_t tokens = 0;
  for (const TraceRequest& request : trace.requests) {
    tokens += request.input_tokens;
    if (tokens > kMaxPromptTokens) {
      return InvalidArgument(
          fmt::format("the prompts of {} requests have more than {} tokens altogether and do not "
                      "fit into memory; ask for "
                      "fewer with --num-prompts, or for shorter ones",
                      trace.requests.size(), kMaxPromptTokens));
    }
  }
  return OkStatus();
}

std::vector<LoadRequest> MakeRequests(const RequestTrace& trace, const BodyMaker& bodies) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  std::vector<LoadRequest> requests;
  TimePoint shown = Clock::now();
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const TraceRequest& request = trace.requests[i];
    requests.push_back({request.arrival_seconds, bodies.Make(request, i), request.input_tokens,
                        request.output_tokens});
    if (!terminal || SecondsSince(shown) < 0.2) continue;
    shown = Clock::now();
    std::cerr << fmt::format("\r\033[Kwriting prompts: {} of {}", i + 1, trace.requests.size())
              << std::flush;
  }
  if (terminal) std::cerr << "\r\033[K" << std::flush;
  return requests;
}

// Sends requests of the first ones' lengths, with texts of their own, so that no later request
// finds its prompt in a cache. A server that answers with errors is also noticed here, once, and
// not by a thousand failed requests.
Status WarmUp(const ServeBenchOptions& options, const ServedEndpoint& endpoint,
              const RequestTrace& trace, const BodyMaker& bodies, const LoadOptions& load) {
  std::vector<LoadRequest> requests;
  for (size_t i = 0; i < static_cast<size_t>(options.num_warmups); ++i) {
    TraceRequest request = trace.requests[i % trace.requests.size()];
    request.prompt.clear();
    request.prefix_blocks.clear();
    requests.push_back(
        {0, bodies.Make(request, SIZE_MAX / 4 + i), request.input_tokens, request.output_tokens});
  }
  LoadOptions quiet = load;
  quiet.on_progress = nullptr;
  LAMINA_ASSIGN_OR_RETURN(const LoadResult result, RunLoad(endpoint.url, requests, quiet));
  for (const RequestRecord& record : result.records) {
    if (!record.ok())
      return PeerLost("the warm-up request failed: " + record.error_kind + ": " + record.error);
  }
  return OkStatus();
}

// Requests that are longer than the model's context would only give errors.
void FitIntoContext(const ServedEndpoint& endpoint, WorkloadOptions& workload) {
  if (workload.max_total_len == 0) workload.max_total_len = endpoint.max_model_len;
}

Result<ServeReport> MeasureServing(const ServeBenchOptions& options) {
  ServeReport report;
  LAMINA_ASSIGN_OR_RETURN(report.level, ServiceLevel::Parse(options.goodput));
  LAMINA_ASSIGN_OR_RETURN(
      report.prices, FindPrices(options.devices, options.device_catalog, options.price_per_hour));
  LoadOptions load;
  load.path = !options.endpoint.empty() ? options.endpoint
              : options.is_chat()       ? "/v1/chat/completions"
                                        : "/v1/completions";
  load.api_key = options.api_key;
  load.ca_file = options.ca_file;
  load.max_concurrency = options.max_concurrency;
  LAMINA_ASSIGN_OR_RETURN(load.timeout, ParseDuration(options.timeout));
  HttpClientOptions http;
  http.api_key = options.api_key;
  http.ca_file = options.ca_file;
  LAMINA_ASSIGN_OR_RETURN(const ServedEndpoint endpoint,
                          FindEndpoint(options.base_url, http, options.model));
  LAMINA_ASSIGN_OR_RETURN(const FoundTokenizer found, FindTokenizer(options.tokenizer, endpoint));
  if (found.tokenizer == nullptr)
    std::cerr << "no tokenizer of the model is here: lengths of prompts are estimates; give "
                 "--tokenizer DIR, or --prompt-format ids\n";
  report.workload = options.workload;
  FitIntoContext(endpoint, report.workload);
  LAMINA_ASSIGN_OR_RETURN(
      const RequestTrace trace,
      MakeWorkload(report.workload,
                   found.tokenizer ? TokensOf(*found.tokenizer, found.dir) : EstimatedTokens()));
  const BodyMaker bodies(options.bodies(), endpoint.model, found.tokenizer.get(),
                         trace.block_tokens);
  LAMINA_RETURN_IF_ERROR(bodies.Check());
  LAMINA_RETURN_IF_ERROR(CheckSize(trace));
  const std::vector<LoadRequest> requests = MakeRequests(trace, bodies);
  LAMINA_RETURN_IF_ERROR(WarmUp(options, endpoint, trace, bodies, load));

  ProgressLine progress;
  load.ends_at_signals = true;
  load.on_progress = [&progress](const LoadProgress& now) { progress.Show(now); };
  report.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
  LAMINA_ASSIGN_OR_RETURN(report.load, RunLoad(endpoint.url, requests, load));
  if (report.load.ended_early)
    std::cerr << "\ninterrupted: this is what was measured so far; once more ends at once\n"
              << std::flush;
  report.figures = Evaluate(report.load, report.level, options.percentiles);
  report.url = options.base_url;
  report.backend = options.backend;
  report.model = endpoint.model;
  report.tokenizer = found.dir;
  report.command = CommandLine();
  report.source = trace.source;
  report.counted_by = trace.counted_by;
  report.num_left_out = trace.num_left_out;
  report.max_concurrency = options.max_concurrency;
  return report;
}

Status BenchServe(const ServeBenchOptions& options) {
  LAMINA_RETURN_IF_ERROR(
      CheckWritable({options.files.json, options.files.requests, options.files.svg}));
  AllowManyOpenFiles();
  LAMINA_ASSIGN_OR_RETURN(const ServeReport report, MeasureServing(options));
  // First of all, as a disk may be full by now.
  std::cout << (options.json ? JsonText(ToJson(report)) + "\n" : ToText(report)) << std::flush;
  LAMINA_RETURN_IF_ERROR(WriteOutputs({{options.files.json, JsonText(ToJson(report), 2) + "\n"},
                                       {options.files.requests, RequestLines(report.load)},
                                       {options.files.svg, DrawServe(report)}}));
  if (report.load.ended_early) {
    SetExitStatus(kExitInterrupted);
    return OkStatus();
  }
  return report.figures.completed > 0 ? OkStatus() : PeerLost("no request was answered");
}

void AddEndpointOptions(CLI::App& command, ServeBenchOptions& options) {
  AddOption(command, "--base-url", options.base_url,
            "Server to ask, any that is OpenAI-compatible; http or https, with or without /v1");
  AddOption(command, "--ca", options.ca_file,
            "With https: PEM file of the CAs to trust; default: those of the system")
      ->type_name("FILE");
  AddOption(command, "--backend", options.backend,
            "openai: completions | openai-chat: chat completions")
      ->check(CLI::IsMember({"openai", "openai-chat"}));
  AddOption(command, "--endpoint", options.endpoint,
            "Path; default: /v1/completions or /v1/chat/completions");
  AddOption(command, "--api-key", options.api_key, "Sent as a bearer token");
  AddOption(command, "--model", options.model,
            "Model's name on the server; default: the server's first");
  AddOption(command, "--tokenizer", options.tokenizer,
            "Folder of the model's tokenizer, for prompts of exact lengths; default: what the "
            "server names, if it is a folder here");
  AddOption(command, "--prompt-format", options.prompt_format,
            "text | ids: lists of token ids, where the server takes them")
      ->check(CLI::IsMember({"text", "ids"}));
  AddOption(command, "--vocab-size", options.vocab_size,
            "Of the model, for ids without a tokenizer")
      ->check(CLI::NonNegativeNumber);
}

void AddLoadOptions(CLI::App& command, ServeBenchOptions& options) {
  AddOption(command, "--max-concurrency", options.max_concurrency,
            "Requests in flight, more wait: a closed loop with --request-rate inf; 0: any")
      ->check(CLI::NonNegativeNumber);
  AddOption(command, "--num-warmups", options.num_warmups, "Requests before the clock starts")
      ->check(CountThatFits(kMaxWarmups));
  AddOption(command, "--ignore-eos", options.ignore_eos, "Answers go on to their length");
  AddOption(command, "--temperature", options.temperature,
            "Of sampling; 0: always the most likely token")
      ->check(NumberAtLeast(0));
  AddOption(command, "--extra-body", options.extra_body,
            "JSON object whose fields every request has too, such as "
            "'{\"slo\": {\"ttft_ms\": 500}}' (docs/latency.md)");
  AddOption(command, "--timeout", options.timeout, "Of one request, such as 90s");
  AddOption(command, "--goodput", options.goodput,
            "Limits in milliseconds, ttft:500 tpot:50 e2el:9000: requests within all of them are "
            "goodput");
  AddOption(command, "--metric-percentiles", options.percentiles,
            "Of all times, such as 50,90,99; default: 90,99")
      ->delimiter(',')
      ->check(NumberIn(0, 100));
}

void AddReportOptions(CLI::App& command, ServeBenchOptions& options) {
  AddOption(command, "--device", options.devices,
            "What serves, as H100=2, for the cost: priced by the device catalog; can be given "
            "several times");
  AddOption(command, "--device-catalog", options.device_catalog,
            "Catalog with the hourly prices of --device");
  AddOption(command, "--price-per-hour", options.price_per_hour,
            "Of everything that serves, in USD, instead of --device")
      ->check(NumberAtLeast(0));
  options.files.AddTo(command, "TTFT and TPOT");
  AddOption(command, "--json", options.json,
            "The figures as a line of JSON on stdout instead of a table");
}

}  // namespace

void RegisterBenchServe(CLI::App& app) {
  auto options = std::make_shared<ServeBenchOptions>();
  CLI::App* command = app.add_subcommand("serve",
                                         "Load an OpenAI-compatible server with requests; latency, "
                                         "throughput and cost of what it answers");
  AddEndpointOptions(*command, *options);
  AddWorkloadFlags(*command, options->workload);
  AddLoadOptions(*command, *options);
  AddReportOptions(*command, *options);
  command->footer(
      "Examples:\n"
      "  lamina bench serve --random-input-len 200 --random-output-len 50 --num-prompts 100 "
      "--request-rate 5 --ignore-eos\n"
      "  lamina bench serve --dataset-path azure_llm_2023_conv.csv --request-rate trace "
      "--num-prompts 500 --ignore-eos \\\n"
      "      --goodput ttft:500 tpot:50 --device H100=1 --device H20=2 --json-out run.json --svg "
      "run.svg");
  OnRun(*command, "lamina bench serve", [options] { return BenchServe(*options); });
}

}  // namespace lamina
