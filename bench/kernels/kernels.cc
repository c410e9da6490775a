#include "bench/kernels/kernels.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <memory>
#include <variant>

#include "bench/kernels/kernel_attention.h"
#include "bench/kernels/kernel_cuda.h"
#include "bench/kernels/kernel_limits.h"
#include "bench/kernels/kernel_linear.h"
#include "bench/kernels/kernel_quantized.h"
#include "cli/commands.h"
#include "cli/shipped_files.h"
#include "cost/node_device.h"

namespace lamina {
namespace {

struct KernelOptions {
  // Empty: attention, linear and quantized; on a GPU attention, linear, slice and round-trip.
  std::vector<std::string> kernels;
  std::vector<int> threads = NumAllowedCores() > 1 ? std::vector{1, 2} : std::vector{1};
  std::vector<int64_t> contexts = {1024, 4096};
  std::vector<int> groups = {1, 4, 8};
  std::vector<int> head_dims = {128};
  std::vector<std::string> kv_dtypes = {"bf16", "fp16", "fp8"};
  std::vector<std::string> slots = {"runs", "churn", "random"};
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 256, 512};
  std::vector<std::string> shapes = {"4096x4096", "11008x4096", "2048x2048", "5632x2048"};
  std::vector<std::string> formats = {"w4g64", "w8", "fp8"};
  std::vector<std::string> models = {"configs/models/llama-7b", "configs/models/llama-13b",
                                     "configs/models/llama-3-70b"};
  std::string device = "cpu";
  int repeats = 7;
  bool quick = false;
  bool json = false;
};

// More than a cache holds: four times the 32 MiB of a core complex or a small socket. `quick` tests
// the program, and not the machine.
int64_t WorkingSetBytes(const KernelOptions& options) {
  return int64_t{options.quick ? 4 : 128} << 20;
}

std::string CaseText(const nlohmann::json& sizes) {
  std::string text;
  for (const char* key : {"kv", "head_dim", "group", "context", "slots", "weights", "rows", "out",
                          "in", "x", "model", "threads"}) {
    if (!sizes.contains(key)) continue;
    const nlohmann::json& value = sizes[key];
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key,
                        value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

void Print(const Measurement& m, const KernelOptions& options) {
  if (options.json) {
    std::cout << ToJsonLine(m) << std::endl;
    return;
  }
  const bool has = !m.reference.empty();
  std::cout << fmt::format(
                   "{:20} {:62} {:>14} {:>8} {:>6}  {}", m.name, CaseText(m.sizes),
                   fmt::format("{:.1f} {}", m.value, m.unit),
                   has ? fmt::format("{:.1f}", m.reference_value) : "-",
                   has ? fmt::format("{:.2f}", m.ratio) : "-",
                   has ? m.reference + (m.note.empty() ? "" : ": " + m.note) : "none: " + m.note)
            << std::endl;
}

using Teams = std::vector<std::unique_ptr<WorkerTeam>>;

// The calling thread, which owns all teams, is pinned last, as each team may use all cores.
Teams MakePinnedTeams(const std::vector<int>& threads) {
  Teams teams;
  for (const int num_threads : threads)
    teams.push_back(std::make_unique<WorkerTeam>(num_threads, /*pin=*/true));
  teams.front()->PinOwner();
  return teams;
}

// Two workers that are pinned to the same core would measure how it is shared.
Status CheckThreads(const std::vector<int>& threads) {
  const int cores = NumAllowedCores(), most = *std::max_element(threads.begin(), threads.end());
  if (most <= cores) return OkStatus();
  return InvalidArgument(fmt::format(
      "--threads {}: they are pinned to a core each, and this process may use {}", most, cores));
}

struct LinearShape {
  int64_t out_features = 0, in_features = 0;
};

Result<LinearShape> ParseShape(const std::string& text) {
  constexpr int64_t kMostFeatures = int64_t{1} << 24;
  LinearShape shape;
  const char* const end = text.data() + text.size();
  const auto [cross, out_error] = std::from_chars(text.data(), end, shape.out_features);
  if (out_error == std::errc() && cross != end && *cross == 'x') {
    const auto [stopped, in_error] = std::from_chars(cross + 1, end, shape.in_features);
    const int64_t least = std::min(shape.out_features, shape.in_features),
                  most = std::max(shape.out_features, shape.in_features);
    if (in_error == std::errc() && stopped == end && least >= 1 && most <= kMostFeatures)
      return shape;
  }
  return InvalidArgument(fmt::format(
      "--shapes: \"{}\" is no OUTxIN such as 4096x4096, of 1 to {} each", text, kMostFeatures));
}

DType KvDTypeOf(const std::string& name) {
  if (name == "bf16") return DType::kBF16;
  if (name == "fp16") return DType::kF16;
  if (name == "fp8") return DType::kF8;
  return name == "int8s" ? DType::kI8Scaled : DType::kF8Scaled;
}

Status MeasureAttention(const KernelOptions& options, const Teams& teams) {
  const int64_t longest = *std::max_element(options.contexts.begin(), options.contexts.end());
  for (const std::string& dtype_name : options.kv_dtypes) {
    const DType dtype = KvDTypeOf(dtype_name);
    for (const int head_dim : options.head_dims) {
      LAMINA_ASSIGN_OR_RETURN(
          const auto bench,
          AttentionBench::Create(dtype, head_dim, 2 * WorkingSetBytes(options), longest));
      for (const int64_t context : options.contexts) {
        for (const SlotOrder order : {SlotOrder::kRuns, SlotOrder::kChurn, SlotOrder::kRandom}) {
          if (std::find(options.slots.begin(), options.slots.end(), ToText(order)) ==
              options.slots.end())
            continue;
          for (const int group : options.groups) {
            for (const auto& team : teams) {
              LAMINA_ASSIGN_OR_RETURN(
                  const Measurement m,
                  bench->Measure({dtype, head_dim, group, context, order}, options.repeats, *team));
              Print(m, options);
            }
          }
        }
      }
    }
  }
  return OkStatus();
}

Status MeasureLinear(const KernelOptions& options, const Teams& teams,
                     const Result<std::unique_ptr<OpenBlas>>& blas) {
  const int64_t most_rows = *std::max_element(options.rows.begin(), options.rows.end());
  for (const std::string& text : options.shapes) {
    LAMINA_ASSIGN_OR_RETURN(const LinearShape shape, ParseShape(text));
    LAMINA_RETURN_IF_ERROR(
        LinearBench::CheckFits(shape.out_features, shape.in_features, most_rows, blas.ok()));
    LinearBench bench(shape.out_features, shape.in_features, WorkingSetBytes(options),
                      blas.ok() ? blas->get() : nullptr, *teams.back());
    for (const int64_t rows : options.rows) {
      for (const auto& team : teams) {
        LAMINA_ASSIGN_OR_RETURN(const std::vector<Measurement> measured,
                                bench.Measure(rows, options.repeats, *team));
        for (const Measurement& m : measured) Print(m, options);
        if (blas.ok()) continue;
        Measurement missing = measured.front();
        missing.name = "linear_against_peer";
        missing.reference.clear();
        missing.note = blas.status().message();
        Print(missing, options);
      }
    }
  }
  return OkStatus();
}

Status MeasureQuantized(const KernelOptions& options, const Teams& teams) {
  const int64_t most_rows = *std::max_element(options.rows.begin(), options.rows.end());
  for (const std::string& text : options.shapes) {
    LAMINA_ASSIGN_OR_RETURN(const LinearShape shape, ParseShape(text));
    LAMINA_RETURN_IF_ERROR(
        QuantizedLinearBench::CheckFits(shape.out_features, shape.in_features, most_rows));
    for (const std::string& format : options.formats) {
      QuantizedLinearBench bench(format, shape.out_features, shape.in_features,
                                 WorkingSetBytes(options), *teams.back());
      for (const int64_t rows : options.rows) {
        for (const auto& team : teams) {
          LAMINA_ASSIGN_OR_RETURN(const std::vector<Measurement> measured,
                                  bench.Measure(rows, options.repeats, *team));
          for (const Measurement& m : measured) Print(m, options);
        }
      }
    }
  }
  return OkStatus();
}

Status MeasureOnCuda(const KernelOptions& options) {
  const Result<NodeDevice> device = FindDevice(options.device, "");
  const CudaGpu* const gpu = device.ok() ? std::get_if<CudaGpu>(&*device) : nullptr;
  if (gpu == nullptr)
    return InvalidArgument("--device: \"" + options.device + "\" is neither cpu nor cuda:N");
  CudaCases cases;
  const auto has = [&](const char* kernel) {
    return options.kernels.empty() || std::find(options.kernels.begin(), options.kernels.end(),
                                                kernel) != options.kernels.end();
  };
  cases.attention = has("attention");
  cases.linear = has("linear");
  cases.quantized = has("quantized");
  cases.formats = options.formats;
  cases.slices = has("slice");
  cases.round_trips = has("round-trip");
  cases.round_trip.group = options.groups.front();
  cases.round_trip.head_dim = options.head_dims.front();
  for (const std::string& model : options.models) cases.models.push_back(ShippedPath(model));
  cases.contexts = options.contexts;
  cases.groups = options.groups;
  cases.head_dims = options.head_dims;
  for (const std::string& dtype : options.kv_dtypes) cases.kv_dtypes.push_back(KvDTypeOf(dtype));
  cases.rows = options.rows;
  for (const std::string& text : options.shapes) {
    LAMINA_ASSIGN_OR_RETURN(const LinearShape shape, ParseShape(text));
    cases.matrices.push_back({shape.out_features, shape.in_features});
  }
  cases.repeats = options.repeats;
  if (options.quick) {
    cases.tokens = 512;
    cases.copies_bytes = 0;
    cases.round_trip.num_layers = 4;
    cases.round_trip.num_steps = 2;
  }
  return MeasureCudaKernels(gpu->index, cases, [&](const Measurement& m) { Print(m, options); });
}

Status Measure(KernelOptions options) {
  if (options.quick) {
    options.repeats = 1;
    options.contexts = {256};
    options.groups = {4};
    options.head_dims = {64};
    options.rows = {1, 16};
    options.models = {"models/tiny-stories"};
    // Small, as the GPU may be an emulated one.
    options.shapes = {options.device == "cpu" ? "512x256" : "64x32"};
  }
  if (options.device != "cpu") return MeasureOnCuda(options);
  LAMINA_RETURN_IF_ERROR(CheckLimitsOf(ActiveCpuIsa()));
  LAMINA_RETURN_IF_ERROR(CheckThreads(options.threads));
  // Before the teams pin this thread, which OpenBLAS's threads would inherit.
  const Result<std::unique_ptr<OpenBlas>> blas = OpenBlas::Load();
  const Teams teams = MakePinnedTeams(options.threads);
  if (options.kernels.empty()) options.kernels = {"attention", "linear", "quantized"};
  for (const std::string& kernel : options.kernels) {
    if (kernel == "slice" || kernel == "round-trip")
      return InvalidArgument("--only " + kernel +
                             ": it is measured on a GPU, with --device cuda:N");
    LAMINA_RETURN_IF_ERROR(kernel == "attention"   ? MeasureAttention(options, teams)
                           : kernel == "quantized" ? MeasureQuantized(options, teams)
                                                   : MeasureLinear(options, teams, blas));
  }
  return OkStatus();
}

}  // namespace

void RegisterKernels(CLI::App& app) {
  auto options = std::make_shared<KernelOptions>();
  CLI::App* command = app.add_subcommand(
      "kernels",
      "Decode attention and linear layers against the limits of this machine, and OpenBLAS");
  command->footer(
      "Values are medians over interleaved repeats; a ratio of 1 is par with the reference, more "
      "is better. References: for attention the\n"
      "smaller of the measured read bandwidth and what the measured multiply-add peak allows "
      "(`slots churn`: the rate on a fresh slab);\n"
      "for linear layers the same of their weights, and OpenBLAS on fp32 weights (package "
      "libopenblas0-pthread); for quantized ones the same limits, and bf16 weights.\n"
      "With --device cuda:0 on a GPU: attention against a copy on the device, linear layers "
      "against cuBLAS alone, quantized ones against\n"
      "reading their bytes as a copy on the device does and against bf16 weights, a slice against "
      "the\n"
      "sum of what its linear layers take in cuBLAS alone and its other operators as copies, and "
      "one row's way to a memory node on the\n"
      "same GPU and back with devices that poll for it against hosts that do. Threads and slots "
      "are then the CPU's matter:\n"
      "every token of a sequence stands anywhere.\n"
      "LAMINA_CPU_ISA=avx2 measures the kernels and the limits of that instruction set.\n"
      "Example:\n  lamina bench kernels --only attention --groups 1,8 --threads 1\n"
      "  lamina bench kernels --device cuda:0 --contexts 512,4096 --rows 1,64,512");
  const auto add_list = [command](const std::string& name, auto& into, const std::string& help) {
    return command->add_option(name, into, help)->delimiter(',')->capture_default_str();
  };
  command
      ->add_option("--only", options->kernels,
                   "attention, linear, quantized; on a GPU also slice, round-trip; default: all of "
                   "them")
      ->delimiter(',')
      ->check(CLI::IsMember({"attention", "linear", "quantized", "slice", "round-trip"}));
  command->add_option("--device", options->device, "cpu, or cuda:N")->capture_default_str();
  add_list("--threads", options->threads, "pinned to as many cores; no more than there are")
      ->check(CLI::Range(1, 1024));
  add_list("--contexts", options->contexts, "attention: tokens per sequence")
      ->check(CLI::Range(64, 1 << 17));
  add_list("--groups", options->groups, "attention: query heads per KV head")
      ->check(CLI::Range(1, 64));
  add_list("--head-dims", options->head_dims, "attention: a multiple of 8")
      ->check(CLI::Range(8, 256));
  add_list("--kv", options->kv_dtypes,
           "attention: bf16, fp16, fp8; int8s and fp8s with a scale for each token and head")
      ->check(CLI::IsMember({"bf16", "fp16", "fp8", "int8s", "fp8s"}));
  add_list("--slots", options->slots, "attention: runs, churn, random")
      ->check(CLI::IsMember({"runs", "churn", "random"}));
  add_list("--formats", options->formats,
           "quantized: " + fmt::format("{}", fmt::join(QuantizedFormatNames(), ", ")))
      ->check(CLI::IsMember(QuantizedFormatNames()));
  add_list("--rows", options->rows, "linear, quantized, slice: rows of the batch")
      ->check(CLI::Range(1, 4096));
  add_list("--shapes", options->shapes, "linear, quantized: outputs x inputs");
  add_list("--models", options->models,
           "slice: folders with a config.json, whose middle slice runs with made-up weights");
  command->add_option("--repeats", options->repeats, "of each case and its reference in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_flag(
      "--quick", options->quick,
      "one small case of each kind, for a test of the program: its ratios say nothing");
  command->add_flag("--json", options->json, "one JSON line per case instead of a table");
  OnRun(*command, "lamina bench kernels", [options] { return Measure(*options); });
}

}  // namespace lamina
