#include "bench/modelled.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "bench/ideal_schedule.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "cli/number_checks.h"
#include "cost/network_cost.h"
#include "cost/node_device.h"
#include "manager/cluster_config.h"
#include "manager/cluster_executor.h"
#include "manager/local_cluster.h"
#include "manager/prefilled_executor.h"
#include "manager/serving_engine.h"
#include "plan/simulate/cluster_model.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

struct ModelledOptions {
  std::string cluster;
  std::vector<int> batches = {16, 32, 64, 128, 256, 512};
  int context = 200;
  int steps = 40;
  // Where the file's pipeline is auto and none is given, it is fixed if there is a number of
  // batches, and none otherwise.
  ClusterChanges changes;
  std::optional<TransportKind> transport;  // nullopt: the cluster file's
  std::string trace_out;
  bool json = false;
};

constexpr int kWarmUpSteps = 4;  // of each batch
// Steps of each batch until the pipeline "auto" has tried what it wants to try.
constexpr int kAutoWarmUpSteps = 60;
// Tokens of each sequence for the warm-up, and for what the scheduler keeps free for it to grow
// into.
constexpr int kSpareTokens = 24;
constexpr auto kCaseDeadline = std::chrono::minutes(5);

int NumCompute(const ClusterConfig& config) {
  return static_cast<int>(std::ranges::count(config.nodes, NodeRole::kCompute, &NodeConfig::role));
}

// IdealSchedule knows one time for all compute nodes.
Status CheckAlike(const ClusterConfig& config) {
  std::string device;
  for (const NodeConfig& node : config.nodes) {
    if (node.role != NodeRole::kCompute) continue;
    if (!device.empty() && node.device != device)
      return InvalidArgument("node '" + node.name + "' is " + node.device +
                             ": the ideal is that of compute nodes with one and the same device");
    device = node.device;
  }
  return OkStatus();
}

Result<ClusterModel> LoadCluster(const ModelledOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(ClusterConfig config, ClusterConfig::Load(options.cluster));
  for (const NodeConfig& node : config.nodes) {
    if (!IsModelledName(node.device))
      return InvalidArgument(options.cluster + ": node '" + node.name +
                             "' is no modelled device, and all have to be");
  }
  ClusterChanges changes = options.changes;
  if (options.transport) config.transport = *options.transport;
  if (config.pipeline == PipelineMode::kAuto && !changes.pipeline)
    changes.pipeline = std::max(config.num_batches, changes.num_batches) > 0 ? PipelineMode::kFixed
                                                                             : PipelineMode::kNone;
  LAMINA_ASSIGN_OR_RETURN(ClusterModel cluster, ClusterModel::Of(std::move(config), changes));
  LAMINA_RETURN_IF_ERROR(CheckAlike(cluster.config).WithContext(options.cluster));
  return cluster;
}

// Seconds of CPU that a process has used, over all its threads.
double CpuSeconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat((std::istreambuf_iterator<char>(file)), {});
  // The name of the process, in parentheses, may hold spaces. Behind it, words 11 and 12 are utime
  // and stime (proc(5)).
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::vector<std::string> words;
  for (std::string word; fields >> word;) words.push_back(word);
  if (words.size() < 13) return 0;  // it ended
  return static_cast<double>(std::stoll(words[11]) + std::stoll(words[12])) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::map<std::string, double> CpuByProcess(LocalCluster& daemons) {
  std::map<std::string, double> seconds = {{"manager", CpuSeconds(getpid())}};
  for (const auto& [name, pid] : daemons.pids()) seconds[name] = CpuSeconds(pid);
  return seconds;
}

// Times of one step, in seconds.
struct TimesOfStep {
  int batch = 0, rows = 0;
  double total = 0;  // from its orders to the orders of the batch's next step
  // The cost model's time on the compute node's device; without memory nodes with attention.
  double linear = 0;
  // The cost model's time on the slowest memory node in each layer.
  double attention = 0;
  // The cost model's attention, mean over the memory nodes.
  double memory_busy = 0;
  // As the compute node saw it: its wait for attention, and the whole step.
  double attention_wait = 0;
  double compute_node = 0;
  // If nothing but the devices took time, and they were as busy as the pipeline can keep them.
  double ideal = 0;
};

// The ideal of the step's batch, while `num_batches` are in flight.
double IdealSeconds(const ClusterModel& cluster, const TimesOfStep& step, int num_batches) {
  const bool stages = cluster.config.shares_model();
  const PipelineMode pipeline = cluster.config.pipeline;
  const IdealSchedule schedule = {
      stages ? cluster.config.pipeline_parallel_size : NumCompute(cluster.config), num_batches,
      // The pipeline "auto" may rotate.
      stages || pipeline == PipelineMode::kRotational || pipeline == PipelineMode::kAuto,
      step.linear, step.attention, step.memory_busy};
  return IdealRounds(schedule)[static_cast<size_t>(std::min(step.batch, num_batches - 1))];
}

TimesOfStep TimesOf(const ClusterModel& cluster, const PrefilledExecutor::Step& step,
                    TimePoint next, int batch) {
  TimesOfStep times;
  times.batch = step.batch;
  times.rows = step.num_rows;
  times.total = std::chrono::duration<double>(next - step.submitted).count();
  times.linear = StepSeconds(*cluster.compute.front().device, cluster.sliced, cluster.model.dtype,
                             step.num_rows, step.num_rows);
  for (const MemoryNodeModel& node : cluster.memory) {
    const auto load = step.attention.find(node.id);
    if (load == step.attention.end()) continue;
    const double seconds =
        cluster.model.num_layers * AttentionSeconds(*node.device, cluster.heads, load->second);
    times.attention = std::max(times.attention, seconds);
    times.memory_busy += seconds / static_cast<double>(cluster.memory.size());
  }
  if (const auto load = step.attention.find(cluster.compute.front().id);
      cluster.memory.empty() && load != step.attention.end()) {
    times.linear += cluster.model.num_layers *
                    AttentionSeconds(*cluster.compute.front().device, cluster.heads, load->second);
  }
  times.attention_wait = std::chrono::duration<double>(step.attention_wait).count();
  times.compute_node = std::chrono::duration<double>(step.compute_node).count();
  // With the pipeline "auto" the number of batches follows from how many sequences are in this one.
  times.ideal =
      IdealSeconds(cluster, times, std::max(1, (batch + step.num_rows / 2) / step.num_rows));
  return times;
}

// What the modelled link would add to a step of `rows` if nothing else happened meanwhile: in each
// layer q, k and v through the compute node's NIC to the memory nodes, and the outputs back.
double NetworkSeconds(const ClusterModel& cluster, int rows) {
  const AttentionHeads& heads = cluster.heads;
  const RowBytes bytes =
      AttentionRowBytes(heads, static_cast<double>(ElementSize(cluster.wire_dtype)));
  const double latency = std::chrono::duration<double>(cluster.config.modelled_latency).count();
  const double per_byte =
      cluster.config.modelled_gb_per_s > 0 ? 1e-9 / cluster.config.modelled_gb_per_s : 0;
  return cluster.model.num_layers * (2 * latency + rows * bytes.both() * per_byte);
}

double MedianOf(const std::vector<TimesOfStep>& steps,
                const std::function<double(const TimesOfStep&)>& part) {
  std::vector<double> values;
  for (const TimesOfStep& step : steps) values.push_back(part(step));
  return Percentile(values, 0.5);
}

// Tokens of a sequence at the end. With the pipeline "auto" all sequences may be in one batch,
// which then takes every step.
int64_t TokensOf(const ModelledOptions& options, const ClusterConfig& config) {
  const int64_t steps = config.pipeline == PipelineMode::kAuto
                            ? int64_t{config.num_batches} * (kAutoWarmUpSteps + options.steps)
                            : options.steps;
  return options.context + steps + kSpareTokens;
}

// The rate of all batches together, where `round` gives the seconds from one step of a batch to its
// next. Each batch counts with its own rate, as compute nodes may have different numbers of
// batches. With the pipeline "auto" batches come and go, and all sequences get a token in each
// round.
double TokensPerSecond(const ClusterModel& cluster, const std::vector<TimesOfStep>& steps,
                       int batch, const std::function<double(const TimesOfStep&)>& round) {
  if (cluster.config.pipeline == PipelineMode::kAuto) return batch / MedianOf(steps, round);
  double sum = 0;
  for (int number = 0; number < cluster.config.num_batches; ++number) {
    std::vector<TimesOfStep> of_batch;
    std::ranges::copy_if(steps, std::back_inserter(of_batch),
                         [&](const TimesOfStep& s) { return s.batch == number; });
    if (!of_batch.empty()) sum += of_batch.front().rows / MedianOf(of_batch, round);
  }
  return sum;
}

struct CaseResult {
  std::vector<TimesOfStep> steps;
  std::map<std::string, double> cpu;  // share of one core, by process
};

Status SubmitAll(Engine& engine, const ModelledOptions& options, int batch, int64_t max_new_tokens,
                 std::atomic<bool>& failed) {
  for (int i = 0; i < batch; ++i) {
    GenerateRequest request;
    request.prompt.assign(static_cast<size_t>(options.context), 0);
    request.max_new_tokens = max_new_tokens;
    request.ignore_eos = true;
    request.sampling.temperature = 0;
    LAMINA_RETURN_IF_ERROR(engine
                               .Submit(std::move(request),
                                       [&failed](const TokenEvent& event) {
                                         failed = failed || event.finish.has_value();
                                       })
                               .status());
  }
  return OkStatus();
}

Result<CaseResult> RunCase(const ModelledOptions& options, const ClusterModel& cluster,
                           LocalCluster& daemons, int batch, TraceFile* trace) {
  ClusterConfig config = cluster.config;
  config.max_num_seqs = config.max_num_batched_tokens = batch;
  // All prompts are the same, and would share their slots.
  config.prefix_caching = false;
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<ClusterExecutor> nodes,
                          ClusterExecutor::Connect(config, cluster.model, {}));
  const int64_t length = TokensOf(options, config);
  int64_t room = 0;  // sequences
  for (const KvNode& node : nodes->kv_nodes()) room += node.capacity_tokens / length;
  if (batch > room)
    return OutOfSpace(fmt::format("the KV cache holds {} sequences of {} tokens", room, length));

  if (trace != nullptr) nodes->RecordTrace(*trace);
  auto executor = std::make_unique<PrefilledExecutor>(std::move(nodes));
  PrefilledExecutor& recorder = *executor;
  std::atomic<bool> failed{false};
  ServingEngineOptions engine_options = ServingEngineOptions::Of(config, cluster.model);
  // Prompts cost nothing, so all of them may appear in one step.
  engine_options.scheduler.max_num_batched_tokens = 1 << 20;
  engine_options.scheduler.max_queued = batch;
  engine_options.eos_tokens.clear();
  ServingEngine engine(engine_options, std::move(executor));
  const int64_t max_new_tokens = config.max_model_len - options.context;
  LAMINA_RETURN_IF_ERROR(SubmitAll(engine, options, batch, max_new_tokens, failed));

  CaseResult result;
  std::map<std::string, double> cpu;
  TimePoint start;
  const int num_batches = config.num_batches;
  const bool is_auto = config.pipeline == PipelineMode::kAuto;
  const int warm_up = num_batches * (is_auto ? kAutoWarmUpSteps : kWarmUpSteps);
  std::map<int, PrefilledExecutor::Step> previous;  // by batch
  int full_steps = 0;
  const Deadline deadline = Deadline::After(kCaseDeadline);
  while (std::ssize(result.steps) < options.steps * num_batches) {
    if (deadline.Passed()) return TimedOut("the case did not end within 5 minutes");
    LAMINA_RETURN_IF_ERROR(daemons.Check());
    if (failed)
      return InternalError("a request ended early; the context leaves room for " +
                           std::to_string(max_new_tokens) + " tokens");
    for (PrefilledExecutor::Step& step : recorder.TakeSteps()) {
      if (const auto before = previous.extract(step.batch);
          before && start != TimePoint{} && before.mapped().submitted > start)
        result.steps.push_back(TimesOf(cluster, before.mapped(), step.submitted, batch));
      // Only steps of full batches count: not those at which prompts appear.
      if (!step.decodes_only || step.num_rows == 0 ||
          (!is_auto && step.num_rows != batch / num_batches))
        continue;
      if (++full_steps == warm_up) {
        cpu = CpuByProcess(daemons);
        start = Clock::now();
      }
      previous.insert_or_assign(step.batch, std::move(step));
    }
    // The engine's thread records the steps; this one only looks from time to time, to use little
    // CPU.
    std::this_thread::sleep_for(milliseconds(20));
  }
  const double seconds = SecondsSince(start);
  for (const auto& [name, used] : CpuByProcess(daemons))
    result.cpu[name] = (used - cpu[name]) / seconds;
  return result;
}

Measurement Report(const ModelledOptions& options, const ClusterModel& cluster,
                   const CaseResult& result, int batch) {
  const auto median = [&](const std::function<double(const TimesOfStep&)>& part) {
    return MedianOf(result.steps, part);
  };
  std::vector<double> totals_ms;
  for (const TimesOfStep& step : result.steps) totals_ms.push_back(step.total * 1e3);
  const int num_batches = cluster.config.num_batches;
  Measurement m;
  m.name = "modelled";
  m.sizes = {{"cluster", cluster.config.name},
             {"batch", batch},
             {"pipeline", PipelineModeName(cluster.config.pipeline)},
             {"num_compute_nodes", NumCompute(cluster.config)},
             {"num_memory_nodes", cluster.memory.size()},
             {"num_batches", num_batches},
             {"context", options.context},
             {"transport", TransportKindName(cluster.config.transport)},
             {"overlap", SwitchName(cluster.config.overlap)}};
  m.value =
      TokensPerSecond(cluster, result.steps, batch, [](const TimesOfStep& s) { return s.total; });
  m.unit = "output tokens/s";
  m.p99 = Percentile(totals_ms, 0.99);
  m.p99_of = "ms per step";
  const auto ideal = [](const TimesOfStep& s) { return s.ideal; };
  m.reference = "cost model: the devices' times and nothing else";
  m.reference_value = TokensPerSecond(cluster, result.steps, batch, ideal);
  m.ratio = m.value / m.reference_value;
  m.details = {
      {"step_ms", 1e3 * median([](const TimesOfStep& s) { return s.total; })},
      {"ideal_step_ms", 1e3 * median(ideal)},
      {"ideal_linear_ms", 1e3 * median([](const TimesOfStep& s) { return s.linear; })},
      {"ideal_attention_ms", 1e3 * median([](const TimesOfStep& s) { return s.attention; })},
      {"manager_ms", 1e3 * median([](const TimesOfStep& s) { return s.total - s.compute_node; })},
      {"compute_node_ms", 1e3 * median([](const TimesOfStep& s) {
                            return s.compute_node - s.attention_wait - s.linear;
                          })},
      {"memory_nodes_ms",
       1e3 * median([](const TimesOfStep& s) { return s.attention_wait - s.attention; })},
      {"cpu", result.cpu}};
  if (cluster.config.models_network()) {
    const double network = NetworkSeconds(cluster, batch / num_batches);
    const double exposed = median([&](const TimesOfStep& s) { return s.total - ideal(s); });
    m.details["network_ms"] = 1e3 * network;
    m.details["exposed_ms"] = 1e3 * exposed;
    m.details["hidden_share"] = 1 - exposed / network;
  }
  return m;
}

void PrintHeader() {
  std::cout << "batch: sequences that decode, as N x the rows of a step where N batches are in "
               "flight. Milliseconds are medians per step. ideal: "
               "the\n"
               "cost model's, linear layers | attention -> a step, as far as batches in flight can "
               "overlap them. over: what the manager, the "
               "compute\n"
               "node (messages, sampling) and the way to the memory nodes and back add, waiting "
               "for other batches included. CPU: of one core.\n\n"
               "     batch  context  tokens/s  ms/step  (p99)     ideal                  ratio   "
               "over: manager  compute  memory   CPU\n";
}

// A second line of a row, if there is a modelled network.
std::string NetworkText(const Measurement& m) {
  if (!m.details.contains("network_ms")) return "";
  return fmt::format(
      "\n           overlap {}: network {:.1f} ms/step, exposed {:.1f} ms (everything beyond the "
      "ideal), hidden {:.0f} %",
      m.sizes.at("overlap").get<std::string>(), m.details.at("network_ms").get<double>(),
      m.details.at("exposed_ms").get<double>(), 100 * m.details.at("hidden_share").get<double>());
}

std::string Row(const Measurement& m) {
  const auto ms = [&](const char* key) { return m.details.at(key).get<double>(); };
  std::string cpu;
  for (const auto& [name, share] : m.details.at("cpu").items())
    cpu += fmt::format(" {} {:.0f} %", name, 100 * share.get<double>());
  const int batch = m.sizes.at("batch").get<int>(),
            num_batches = m.sizes.at("num_batches").get<int>();
  const bool whole = num_batches == 1 || m.sizes.at("pipeline") == "auto";
  const std::string rows =
      whole ? std::to_string(batch) : fmt::format("{} x {}", num_batches, batch / num_batches);
  return fmt::format(
             "{:>10} {:8} {:9.0f} {:8.1f} {:7.1f}  {:6.1f} | {:5.1f} -> {:<6.1f} {:6.3f} {:14.1f} "
             "{:8.1f} {:7.1f}  {}",
             rows, m.sizes.at("context").get<int>(), m.value, ms("step_ms"), m.p99,
             ms("ideal_linear_ms"), ms("ideal_attention_ms"), ms("ideal_step_ms"), m.ratio,
             ms("manager_ms"), ms("compute_node_ms"), ms("memory_nodes_ms"), cpu) +
         NetworkText(m);
}

Status MeasureModelled(const ModelledOptions& options) {
  LAMINA_ASSIGN_OR_RETURN(ClusterModel cluster, LoadCluster(options));
  if (TokensOf(options, cluster.config) > cluster.config.max_model_len) {
    return InvalidArgument(
        fmt::format("--context {} with --steps {} is too long for the model's {} positions",
                    options.context, options.steps, cluster.config.max_model_len));
  }
  std::unique_ptr<TraceFile> trace;
  if (!options.trace_out.empty()) {
    LAMINA_ASSIGN_OR_RETURN(trace, TraceFile::Create(options.trace_out));
  }
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<LocalCluster> daemons,
                          LocalCluster::CreateFor(cluster.config));
  if (!options.json) {
    PrintHeader();
    std::cout << fmt::format("pipeline {}, {} compute nodes\n",
                             PipelineModeName(cluster.config.pipeline), NumCompute(cluster.config));
  }
  int num_measured = 0;
  for (const int batch : options.batches) {
    if (cluster.config.pipeline != PipelineMode::kAuto && batch % cluster.config.num_batches != 0) {
      std::cerr << fmt::format("batch {} left out: it is no multiple of the {} batches in flight\n",
                               batch, cluster.config.num_batches);
      continue;
    }
    const Result<CaseResult> result = RunCase(options, cluster, *daemons, batch, trace.get());
    if (result.status().code() == StatusCode::kOutOfSpace) {
      std::cerr << fmt::format("batch {} with context {} left out: {}\n", batch, options.context,
                               result.status().message());
      continue;
    }
    LAMINA_RETURN_IF_ERROR(result.status());
    const Measurement measurement = Report(options, cluster, *result, batch);
    std::cout << (options.json ? ToJsonLine(measurement) : Row(measurement)) << std::endl;
    ++num_measured;
  }
  if (num_measured == 0)
    return InvalidArgument(
        "no batch could be measured: choose others with --batch, or another --context");
  return trace != nullptr ? trace->Close() : OkStatus();
}

}  // namespace

void RegisterModelled(CLI::App& app) {
  auto options = std::make_shared<ModelledOptions>();
  CLI::App* command = app.add_subcommand(
      "modelled", "Decode steps on modelled devices against the sum of the devices' times");
  command->footer(
      "Example: lamina bench modelled configs/modelled-13b.yaml --batch 128 256 --context 400 "
      "--json");
  command
      ->add_option("cluster", options->cluster,
                   "cluster YAML whose nodes are all modelled; its daemons run on this machine")
      ->required();
  command
      ->add_option("--batch", options->batches,
                   "sequences that decode at a time; several are measured in turn")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command
      ->add_option("--context", options->context, "tokens of each sequence when measuring begins")
      ->transform(SizeAsNumber())
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--steps", options->steps, "measured steps of each case")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command
      ->add_option("--num-batches", options->changes.num_batches,
                   "steps in flight that they are divided among; 0: the cluster file's")
      ->check(CLI::Range(0, 16));
  command
      ->add_option("--compute-nodes", options->changes.num_compute_nodes,
                   "copies of the cluster file's first compute node; 0: those of the file")
      ->check(CLI::Range(0, 16));
  AddSetting(*command, "--pipeline", kPipelineModesAutoLast, options->changes.pipeline,
             kPipelineModesAutoLast.listed() + ", instead of the cluster file's");
  AddSetting(*command, "--transport", kTransportKinds, options->transport,
             kTransportKinds.listed() + ", instead of the cluster file's");
  command->add_option("--trace-out", options->trace_out,
                      "write what the nodes did to this file, for ui.perfetto.dev");
  AddSetting(*command, "--overlap", kSwitches, options->changes.overlap,
             kSwitches.listed() + ", instead of the cluster file's");
  command->add_option("--latency", options->changes.latency,
                      "of the modelled network, such as 33us, instead of the cluster file's");
  command
      ->add_option("--gb-per-s", options->changes.gb_per_s, "likewise its bandwidth, in 10^9 bytes")
      ->check(ModelledGbPerSecond());
  command->add_flag("--json", options->json, "a JSON line for each case instead of a table");
  OnRun(*command, "lamina bench modelled", [options] { return MeasureModelled(*options); });
}

}  // namespace lamina
