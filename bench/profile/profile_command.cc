#include "bench/profile/profile_command.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "base/output_file.h"
#include "bench/commit.h"  // generated
#include "bench/kernels/machine_limits.h"
#include "bench/profile/attention_times.h"
#include "bench/profile/layer_times.h"
#include "bench/report.h"
#include "cli/commands.h"
#include "cost/network_cost.h"
#include "hub/find_model.h"
#include "manager/cluster_config.h"
#include "manager/resolve_config.h"

namespace lamina {
namespace {

constexpr int kLimitSamples = 5;

struct ProfileOptions {
  std::string model;
  LoadFormat load_format = LoadFormat::kAuto;
  DTypeSetting kv_dtype;
  std::string out = ".";
  std::string name = "cpu";
  std::vector<int64_t> rows = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  int threads = 0;
};

// The share of the peak at which the roofline's operations take as long as was measured.
MfuPoint PointOf(double batch, double operations, double seconds, double peak) {
  return {std::max(1, static_cast<int>(batch + 0.5)),
          std::clamp(operations / (seconds * peak), 1e-6, 1.0)};
}

// The file of layer times has no column for the logits' matrix, which the cost model takes by its
// roofline: at the share of the peak that was measured with so many rows.
std::vector<MfuPoint> HeadMfu(const ModelConfig& model, const std::vector<LayerTimes>& times,
                              double peak) {
  std::vector<MfuPoint> points;
  const double weights =
      static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
  for (const LayerTimes& t : times) {
    const auto rows = static_cast<double>(t.rows);
    points.push_back(PointOf(rows, 2 * weights * rows, t.head, peak));
  }
  return points;
}

std::vector<MfuPoint> AttentionMfu(const AttentionHeads& heads,
                                   const std::vector<AttentionTime>& times, double peak) {
  std::vector<MfuPoint> points;
  for (const AttentionTime& t : times)
    points.push_back(
        PointOf(RowsPerToken(heads, t.load), AttentionOperations(heads, t.load), t.seconds, peak));
  return points;
}

std::string ToYaml(const std::vector<MfuPoint>& points) {
  std::string text;
  for (const MfuPoint& point : points)
    text += fmt::format("{}{{batch: {}, mfu: {:.4g}}}", text.empty() ? "" : ", ", point.batch,
                        point.mfu);
  return "[" + text + "]";
}

std::string CatalogOf(const ProfileOptions& options, const DeviceSpec& device, int threads) {
  const auto memory = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return fmt::format(
      "# Measured by lamina bench profile. To use it: lamina simulate CLUSTER.yaml "
      "--device-catalog THIS_FILE --cpu-device {0}\n"
      "version: 1\n\ndevices:\n- name: {0}\n  bf16_tflops: {1:.4g}\n  fp32_tflops: {1:.4g}\n  "
      "memory: {2}\n  bandwidth_gb_per_s: {3:.4g}\n"
      "  mfu: {4}\n  attention_mfu: {5}\n  profile: {0}.csv\n  source: \"{6}, {7} of them used, "
      "{8:%Y-%m-%d}, lamina {9}\"\n",
      options.name, device.bf16_tflops, memory, device.bandwidth_gb_per_s, ToYaml(device.mfu),
      ToYaml(device.attention_mfu), MachineName(), threads, fmt::localtime(std::time(nullptr)),
      kCommit);
}

void PrintLayers(const LayerTimes& t) {
  std::cout << fmt::format(
                   "{:>6} {:>10.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>10.3f}\n",
                   t.rows, 1e3 * t.layer(), 1e3 * t.qkv, 1e3 * t.output, 1e3 * t.up, 1e3 * t.down,
                   1e3 * (t.input_norm + t.rope + t.post_norm + t.activation + t.add), 1e3 * t.head)
            << std::flush;
}

Status Profile(ProfileOptions options) {
  LAMINA_RETURN_IF_ERROR(CheckLimitsOf(ActiveCpuIsa()));
  const std::string csv_path = options.out + "/" + options.name + ".csv",
                    yaml_path = options.out + "/" + options.name + ".yaml";
  LAMINA_RETURN_IF_ERROR(CheckWritable({csv_path, yaml_path}));
  LAMINA_ASSIGN_OR_RETURN(options.model, FindModel(options.model));
  std::sort(options.rows.begin(), options.rows.end());
  options.rows.erase(std::unique(options.rows.begin(), options.rows.end()), options.rows.end());
  WorkerTeam team(options.threads);
  WeightOptions weights;
  weights.model_dir = options.model;
  weights.load_format = options.load_format;
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> model,
                          LoadedModel::Load(weights, team));
  const ModelConfig& config = model->config;
  const AttentionHeads heads{config.num_heads, config.num_kv_heads, config.head_dim,
                             options.kv_dtype.value_or(config.dtype)};

  MachineLimits limits(team);
  for (int i = 0; i < kLimitSamples; ++i) limits.Measure();
  DeviceSpec device = limits.device();
  std::cout << fmt::format(
      "{}, {} of them used: multiply-adds {:.0f} GFLOP/s, reads {:.1f} GB/s\n\n", MachineName(),
      team.num_workers(), 1e3 * device.bf16_tflops, device.bandwidth_gb_per_s);
  std::cout
      << "ms of      a layer     q,k,v    output   up,gate      down    others   head\n  rows\n"
      << std::flush;
  const std::vector<LayerTimes> layers = MeasureLayers(*model, options.rows, team, PrintLayers);
  LAMINA_ASSIGN_OR_RETURN(const std::vector<AttentionTime> attention,
                          MeasureAttention(heads, team));
  const double peak = device.peak_flops_per_s();
  device.mfu = HeadMfu(config, layers, peak);
  device.attention_mfu = AttentionMfu(heads, attention, peak);
  const AttentionTime& decode = attention.front();
  std::cout << fmt::format(
      "\nattention of a layer: decode {:.1f} GB/s of K and V; prompts {}\n",
      static_cast<double>(KvBytesPerToken(heads, 1) * decode.load.kv_tokens) / decode.seconds / 1e9,
      fmt::format("{:.0f} GFLOP/s", 1e-9 * AttentionOperations(heads, attention.back().load) /
                                        attention.back().seconds));
  LAMINA_RETURN_IF_ERROR(WriteOutput(csv_path, ToCsv(config, layers)));
  LAMINA_RETURN_IF_ERROR(WriteOutput(yaml_path, CatalogOf(options, device, team.num_workers())));
  std::cout << "The device is in " << yaml_path << ", its layers in " << csv_path << '\n';
  return OkStatus();
}

}  // namespace

void RegisterProfile(CLI::App& app) {
  auto options = std::make_shared<ProfileOptions>();
  CLI::App* command = app.add_subcommand(
      "profile", "Measure a model's layers on this machine: a device for the catalog");
  command->footer(
      "Example: lamina bench profile models/tiny-stories --out profiles --name laptop\n"
      "  then lamina simulate configs/local.yaml --device-catalog profiles/laptop.yaml "
      "--cpu-device laptop");
  command
      ->add_option("model", options->model,
                   "checkpoint directory (with --load-format dummy its config.json is enough)")
      ->required();
  AddSetting(*command, "--load-format", kLoadFormats, options->load_format,
             kLoadFormats.listed() + " (random weights)");
  AddSetting(*command, "--kv-dtype", kKvDTypeChoices, options->kv_dtype, kKvDTypeChoices.listed());
  command
      ->add_option("--out", options->out,
                   "folder for NAME.yaml, a catalog with this device, and NAME.csv")
      ->check(CLI::ExistingDirectory)
      ->capture_default_str();
  command->add_option("--name", options->name, "of the device")
      ->check([](const std::string& name) {
        const bool fits =
            !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
              return std::isalnum(c) || c == '-' || c == '_';
            });
        return fits ? std::string() : "letters, digits, - and _ only: it is a file's name too";
      })
      ->capture_default_str();
  command
      ->add_option("--rows", options->rows, "numbers of rows to measure; others are interpolated")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str();
  command->add_option("--threads", options->threads, "0: all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  OnRun(*command, "lamina bench profile", [options] { return Profile(*options); });
}

}  // namespace lamina
