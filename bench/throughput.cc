#include "bench/throughput.h"

#include <fmt/format.h>

#include <functional>
#include <iostream>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/units.h"
#include "bench/in_process_executor.h"
#include "bench/kernels/machine_limits.h"
#include "bench/report.h"
#include "bench/synthetic_prompt.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cost/cost_model.h"
#include "cost/node_device.h"
#include "hub/find_model.h"
#include "manager/cluster_config.h"
#include "manager/cluster_executor.h"
#include "manager/local_cluster.h"
#include "manager/prefilled_executor.h"
#include "manager/resolve_config.h"
#include "manager/serving_engine.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

struct Options {
  std::string model;
  LoadFormat load_format = LoadFormat::kAuto;
  DTypeSetting kv_dtype;
  TransportKind transport = TransportKind::kAuto;
  PollingMode polling = PollingMode::kAuto;
  PipelineMode pipeline = PipelineMode::kNone;  // all nodes share this machine's cores
  // "": what all prompts need, at least 512 MiB.
  std::string memory;
  int memory_nodes = 2;
  int compute_threads = 0;
  int memory_threads = 1;
  std::string device = "cpu";
  std::string memory_device;  // "": that of `device`
  int num_prompts = 32;
  int input_len = 128;
  int output_len = 64;
  int max_num_seqs = 32;
  int max_num_batched_tokens = 512;
  int repeats = 3;
  bool step_times_cost = false;
  bool decode_only = false;
  std::string trace_out;
  bool json = false;
};

// The limit is that of the daemons. A system refuses to start some tens of thousands.
constexpr int kMostThreads = 1024;
constexpr int kMostSequences = 1 << 16, kLengthLimit = 1 << 20;
constexpr int64_t kLeastMemoryBytes = int64_t{512} << 20;
// Memory nodes get more than an even share: sequences go where attention is fast.
constexpr double kSpareMemory = 1.25;
constexpr auto kRunDeadline = std::chrono::minutes(30);

// One run: all prompts are submitted at once, and none ends early. The rate is that of the whole
// run, or with --decode-only from when all sequences have their first token.
struct Run {
  double tokens_per_second = 0;
  std::vector<double> itl_ms;  // between two tokens of one sequence
};

Status NotAllAtOnce() {
  return OutOfSpace(
      "--decode-only: some sequences had to wait for KV memory, so what was measured is a smaller "
      "batch; give more --memory");
}

// What has come of the requests of a run so far. The engine's thread adds to it.
struct Progress {
  explicit Progress(int num_prompts)
      : open(num_prompts), last(static_cast<size_t>(num_prompts)), start(Clock::now()) {}

  Mutex mutex;
  CondVar done;
  int open GUARDED_BY(mutex);
  Status error GUARDED_BY(mutex);
  Run run GUARDED_BY(mutex);
  std::vector<TimePoint> last GUARDED_BY(mutex);  // [prompts] when the last token came
  TimePoint start GUARDED_BY(mutex);
  int num_first GUARDED_BY(mutex) = 0;
  int64_t num_tokens GUARDED_BY(mutex) = 0;  // since start
};

void Take(const TokenEvent& event, int prompt, const Options& options, Progress& progress) {
  MutexLock lock(progress.mutex);
  TimePoint& previous = progress.last[static_cast<size_t>(prompt)];
  if (event.token && !event.first) progress.run.itl_ms.push_back(SecondsSince(previous) * 1e3);
  previous = Clock::now();
  if (event.token) ++progress.num_tokens;
  if (event.first && ++progress.num_first == options.num_prompts && options.decode_only) {
    // A sequence has ended before another one had its first token.
    if (progress.open < options.num_prompts) progress.error = NotAllAtOnce();
    progress.start = previous;
    progress.num_tokens = 0;
  }
  if (event.finish == FinishReason::kError) progress.error = event.error;
  if (event.finish && --progress.open == 0) progress.done.NotifyAll();
}

Result<Run> RunOnce(Engine& engine, const Options& options, int64_t vocab_size) {
  Progress progress(options.num_prompts);
  // Whichever gets the first token waits for the others' prompts: they are all to run together.
  MutexLock lock(progress.mutex);
  for (int i = 0; i < options.num_prompts; ++i) {
    GenerateRequest request;
    request.prompt = SyntheticPrompt(options.input_len, static_cast<uint64_t>(i), vocab_size);
    request.max_new_tokens = options.output_len;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    Result<RequestId> id = engine.Submit(
        std::move(request),
        [&progress, &options, i](const TokenEvent& event) { Take(event, i, options, progress); });
    if (!id.ok()) return id.status();
  }
  const TimePoint latest = Clock::now() + kRunDeadline;
  while (progress.open > 0) {
    if (!progress.done.WaitUntil(lock, latest))
      return TimedOut("the run did not end within 30 minutes");
  }
  if (!progress.error.ok()) return progress.error;
  if (options.decode_only && engine.status().scheduler.num_preemptions > 0) return NotAllAtOnce();
  progress.run.tokens_per_second =
      static_cast<double>(progress.num_tokens) / SecondsSince(progress.start);
  return std::move(progress.run);
}

// With --decode-only prompts appear without being computed, all in one step.
std::unique_ptr<Engine> MakeEngine(const Options& options, const ClusterConfig& config,
                                   const ModelConfig& model,
                                   std::unique_ptr<StepExecutor> executor) {
  ServingEngineOptions engine = ServingEngineOptions::Of(config, model);
  engine.scheduler.max_queued = 1 << 20;
  engine.eos_tokens.clear();
  if (options.decode_only) {
    engine.scheduler.max_num_batched_tokens = static_cast<int>(
        std::min<int64_t>(int64_t{config.max_num_seqs} * (options.input_len + 1), 1 << 30));
    executor = std::make_unique<PrefilledExecutor>(std::move(executor));
  }
  return std::make_unique<ServingEngine>(engine, std::move(executor));
}

// What each memory node needs for the KV of all sequences that run at a time, at their longest and
// spread evenly.
int64_t KvBytesPerNode(const Options& options, const ModelConfig& model) {
  const int sequences = std::min(options.num_prompts, options.max_num_seqs);
  return int64_t{(sequences + options.memory_nodes - 1) / options.memory_nodes} *
         (options.input_len + options.output_len) * KvBytesPerToken(model, options.kv_dtype);
}

Result<int64_t> MemoryBytes(const Options& options, const ModelConfig& model) {
  const int64_t needed = KvBytesPerNode(options, model);
  if (options.memory.empty())
    return std::max(kLeastMemoryBytes,
                    static_cast<int64_t>(kSpareMemory * static_cast<double>(needed)));
  LAMINA_ASSIGN_OR_RETURN(const int64_t given, ParseSize(options.memory));
  if (options.decode_only && given < needed) {
    return OutOfSpace(
        fmt::format("--decode-only: {} sequences of {} tokens need {} bytes of KV on each of the "
                    "{} memory nodes, and --memory is {} "
                    "bytes; give more, or leave it out",
                    options.num_prompts, options.input_len + options.output_len, needed,
                    options.memory_nodes, given));
  }
  return given;
}

// Both engines live during the whole benchmark and are measured in turn, so that a machine whose
// speed drifts does not decide the ratio.
struct Contestants {
  std::unique_ptr<TraceFile> trace;  // null: none is written
  std::unique_ptr<LocalCluster> cluster;
  ClusterExecutor* nodes = nullptr;  // owned by `disaggregated`
  std::unique_ptr<Engine> disaggregated;
  std::unique_ptr<Engine> one_process;  // null with step_times_cost
  ModelConfig model;
  DType kv_dtype = DType::kBF16;

  Engine& reference() { return one_process != nullptr ? *one_process : *disaggregated; }
};

Result<std::unique_ptr<Engine>> MakeOneProcess(const Options& options, const ClusterConfig& config,
                                               const ModelConfig& model) {
  InProcessOptions in_process = InProcessOptions::Of(config, model);
  in_process.kv_tokens =
      int64_t{options.num_prompts} * (options.input_len + options.output_len + 1);
  in_process.num_threads = options.compute_threads;
  LAMINA_ASSIGN_OR_RETURN(in_process.device, FindDevice(options.device, ""));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<InProcessExecutor> executor,
                          InProcessExecutor::Create(in_process));
  return MakeEngine(options, InOneProcess(config), model, std::move(executor));
}

Result<Contestants> SetUp(const Options& options, const ClusterConfig& limits) {
  Contestants both;
  if (!options.trace_out.empty()) {
    LAMINA_ASSIGN_OR_RETURN(both.trace, TraceFile::Create(options.trace_out));
  }
  LAMINA_ASSIGN_OR_RETURN(both.model, ModelConfig::Load(options.model));
  LAMINA_ASSIGN_OR_RETURN(const int64_t memory_bytes, MemoryBytes(options, both.model));
  LocalClusterOptions local;
  local.num_memory_nodes = options.memory_nodes;
  local.memory_bytes = memory_bytes;
  local.compute_threads = options.compute_threads;
  local.memory_threads = options.memory_threads;
  local.device = options.device;
  local.memory_device = options.memory_device.empty() ? options.device : options.memory_device;
  local.transport = options.transport;
  LAMINA_ASSIGN_OR_RETURN(both.cluster, LocalCluster::Create(local));
  ClusterConfig config = both.cluster->config();
  config.model_path = options.model;
  config.load_format = options.load_format;
  config.polling = options.polling;
  config.kv_dtype = options.kv_dtype;
  config.pipeline = options.pipeline;
  config.prefix_caching = false;  // every pair of runs has the same prompts
  config.max_num_seqs = limits.max_num_seqs;
  config.max_num_batched_tokens = limits.max_num_batched_tokens;
  config.step_timeout = std::chrono::minutes(10);
  config.peer_timeout = config.suspect_after = std::chrono::minutes(1);
  LAMINA_RETURN_IF_ERROR(ResolveConfig(config, both.model));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ClusterExecutor> cluster,
                          ClusterExecutor::Connect(config, both.model, [](const std::string& line) {
                            std::cerr << line << '\n';
                          }));
  both.kv_dtype = config.kv_dtype.value_or(both.model.dtype);
  if (both.trace != nullptr) cluster->RecordTrace(*both.trace);
  both.nodes = cluster.get();
  both.disaggregated = MakeEngine(options, config, both.model, std::move(cluster));

  if (!options.step_times_cost) {
    LAMINA_ASSIGN_OR_RETURN(both.one_process, MakeOneProcess(options, config, both.model));
  }
  return both;
}

// Tokens per second of decode steps with so many sequences at the run's mean context, if nothing
// but this machine's limits took time.
Result<double> Floor(const Options& options, const Contestants& both, const DeviceSpec& machine) {
  LAMINA_ASSIGN_OR_RETURN(Graph graph, TraceModel(both.model));
  LAMINA_ASSIGN_OR_RETURN(const SlicedModel sliced, SplitGraph(std::move(graph)));
  const int rows = std::min(options.num_prompts, options.max_num_seqs);
  const int64_t context = options.input_len + options.output_len / 2;
  const AttentionHeads heads{both.model.num_heads, both.model.num_kv_heads, both.model.head_dim,
                             both.kv_dtype};
  double seconds = StepSeconds(machine, sliced, both.model.dtype, rows, rows);
  for (const Op& attention : sliced.attentions) {
    AttentionLoad load;
    for (int i = 0; i < rows; ++i) load.AddDecode(attention.window.NumAttended(context - 1));
    seconds += AttentionSeconds(machine, heads, load);
  }
  return rows / seconds;
}

Status AddFloor(const Options& options, const Contestants& both, const MachineLimits& limits,
                Measurement& m) {
  const DeviceSpec machine = limits.device();
  LAMINA_ASSIGN_OR_RETURN(const double floor, Floor(options, both, machine));
  const double gflops = machine.bf16_tflops * 1e3, gb_per_s = machine.bandwidth_gb_per_s;
  m.details = {{"limit_tokens_per_s", floor},
               {"share_of_limit", m.value / floor},
               {"one_process_share_of_limit", m.reference_value / floor},
               {"fma_gflop_per_s", gflops},
               {"read_gb_per_s", gb_per_s}};
  m.note = fmt::format(
      "{:.2f} of the {:.1f} tokens/s that {:.0f} GFLOP/s and {:.1f} GB/s, measured in this run, "
      "allow",
      m.value / floor, floor, gflops, gb_per_s);
  return OkStatus();
}

Status Measure(const Options& options) {
  for (const std::string& device : {options.device, options.memory_device}) {
    if (!device.empty() && (!IsDeviceName(device) || IsModelledName(device)))
      return InvalidArgument("--device: \"" + device + "\" is neither cpu nor cuda:N");
  }
  if (options.decode_only && options.output_len < 2)
    return InvalidArgument("--decode-only needs an --output-len of at least 2");
  if (options.decode_only && options.num_prompts > options.max_num_seqs)
    return InvalidArgument(
        "--decode-only: all prompts decode at the same time, so --max-num-seqs must be at least "
        "--num-prompts");
  // Limits are measured of CPUs only.
  const bool has_limits =
      options.decode_only && options.device == "cpu" && options.memory_device.empty();
  if (has_limits) LAMINA_RETURN_IF_ERROR(CheckLimitsOf(ActiveCpuIsa()));
  WorkerTeam team(options.compute_threads);
  std::optional<MachineLimits> machine;
  if (has_limits) machine.emplace(team);
  ClusterConfig limits;
  limits.max_num_seqs = options.max_num_seqs;
  limits.max_num_batched_tokens = std::max(options.max_num_batched_tokens, options.max_num_seqs);
  LAMINA_ASSIGN_OR_RETURN(Contestants both, SetUp(options, limits));
  std::vector<double> cluster, one_process, ratios, itl_ms;
  const std::string rival = options.step_times_cost ? "without step times" : "one process";
  for (int i = 0; i <= options.repeats; ++i) {  // run 0 warms up
    if (machine) machine->Measure();
    Run ours, reference;
    // Each is the first of every other pair, so that being first decides nothing.
    for (const bool is_ours : {i % 2 == 0, i % 2 != 0}) {
      both.nodes->TimeSteps(is_ours || !options.step_times_cost);
      LAMINA_ASSIGN_OR_RETURN((is_ours ? ours : reference),
                              RunOnce(is_ours ? *both.disaggregated : both.reference(), options,
                                      both.model.vocab_size));
    }
    std::cerr << fmt::format("run {} of {}: cluster {:.1f}, {} {:.1f} tokens/s{}\n", i,
                             options.repeats, ours.tokens_per_second, rival,
                             reference.tokens_per_second, i == 0 ? " (warm-up)" : "");
    if (i == 0) continue;
    cluster.push_back(ours.tokens_per_second);
    one_process.push_back(reference.tokens_per_second);
    ratios.push_back(ours.tokens_per_second / reference.tokens_per_second);
    itl_ms.insert(itl_ms.end(), ours.itl_ms.begin(), ours.itl_ms.end());
  }
  Measurement m;
  m.name = "throughput";
  m.sizes = {
      {"model", options.model.substr(options.model.find_last_of('/') + 1)},
      {"load_format", LoadFormatName(options.load_format)},
      {"device", options.device},
      {"memory_device", options.memory_device.empty() ? options.device : options.memory_device},
      {"memory_nodes", options.memory_nodes},
      {"transport", TransportKindName(options.transport)},
      {"polling", PollingModeName(options.polling)},
      {"pipeline", PipelineModeName(options.pipeline)},
      {"num_prompts", options.num_prompts},
      {"input_len", options.input_len},
      {"output_len", options.output_len},
      {"max_num_seqs", options.max_num_seqs},
      {"decode_only", options.decode_only},
      {"repeats", options.repeats}};
  m.value = Percentile(cluster, 0.5);
  m.unit = "output tokens/s";
  m.p99 = itl_ms.empty() ? 0 : Percentile(itl_ms, 0.99);
  m.p99_of = "ms between tokens";
  m.reference = options.step_times_cost ? "same cluster, steps not timed"
                                        : "same engine in one process, attention local";
  m.reference_value = Percentile(one_process, 0.5);
  m.ratio = Percentile(ratios, 0.5);
  if (machine) LAMINA_RETURN_IF_ERROR(AddFloor(options, both, *machine, m));
  std::cout << (options.json ? ToJsonLine(m) : ToText(m)) << std::endl;
  // The engine holds the last records of the trace.
  both.disaggregated.reset();
  return both.trace != nullptr ? both.trace->Close() : OkStatus();
}

}  // namespace

void RegisterThroughput(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "throughput", "Tokens per second of a local cluster against the same engine in one process");
  command->footer(
      "Examples:\n  lamina bench throughput models/tiny-stories --num-prompts 64 --input-len 200 "
      "--output-len 100 --json\n"
      "  lamina bench throughput configs/models/llama-7b --load-format dummy --device cuda:0 "
      "--memory-nodes 1 --decode-only");
  command
      ->add_option(
          "model", options->model,
          "checkpoint directory or name (with --load-format dummy its config.json is enough)")
      ->required();
  AddSetting(*command, "--load-format", kLoadFormats, options->load_format,
             kLoadFormats.listed() + " (random weights)");
  AddSetting(*command, "--kv-dtype", kKvDTypeChoices, options->kv_dtype, kKvDTypeChoices.listed());
  command->add_option("--memory-nodes", options->memory_nodes, "memory nodes of the cluster")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  command->add_option(
      "--memory", options->memory,
      "KV memory of each memory node; default: what all prompts need, at least 512MiB");
  AddSetting(*command, "--transport", kTransportKinds, options->transport,
             kTransportKinds.listed());
  AddSetting(*command, "--polling", kPollingModes, options->polling,
             "auto | device (GPUs wait for each other themselves) | host");
  constexpr SettingWords kPipelines =
      kPipelineModes.Only({PipelineMode::kNone, PipelineMode::kFixed, PipelineMode::kAuto});
  AddSetting(*command, "--pipeline", kPipelines, options->pipeline,
             kPipelines.listed() + ": batches in flight of the cluster");
  command->add_option("--compute-threads", options->compute_threads, "0: all cores")
      ->check(CLI::Range(0, kMostThreads))
      ->capture_default_str();
  command->add_option("--memory-threads", options->memory_threads, "of each memory node")
      ->check(CLI::Range(1, kMostThreads))
      ->capture_default_str();
  command
      ->add_option("--device", options->device,
                   "cpu, or cuda:N: of the cluster's nodes and of the engine in one process")
      ->capture_default_str();
  command->add_option("--memory-device", options->memory_device, "another one for memory nodes");
  command->add_option("--num-prompts", options->num_prompts, "requests, all submitted at once")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, kMostSequences))
      ->capture_default_str();
  command->add_option("--input-len", options->input_len, "tokens of each prompt")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, kLengthLimit))
      ->capture_default_str();
  command->add_option("--output-len", options->output_len, "tokens generated for each")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, kLengthLimit))
      ->capture_default_str();
  command->add_option("--max-num-seqs", options->max_num_seqs, "batch size")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, kMostSequences))
      ->capture_default_str();
  command
      ->add_option("--max-num-batched-tokens", options->max_num_batched_tokens, "rows of one step")
      ->transform(SizeAsNumber())
      ->check(CLI::Range(1, kLengthLimit))
      ->capture_default_str();
  command->add_option("--repeats", options->repeats, "measured pairs of runs after one warm-up")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--decode-only", options->decode_only,
                    "prompts appear with made-up K and V, and the rate is that of decoding; also "
                    "against this machine's limits");
  command->add_flag("--step-times-cost", options->step_times_cost,
                    "compare with the same cluster while its nodes time nothing");
  command->add_option("--trace-out", options->trace_out,
                      "write what the cluster's nodes did to this file, for ui.perfetto.dev");
  command->add_flag("--json", options->json, "one JSON line instead of text");
  OnRun(*command, "lamina bench throughput", [options] {
    LAMINA_ASSIGN_OR_RETURN(options->model, FindModel(options->model));
    return Measure(*options);
  });
}

}  // namespace lamina
