#include "plan/cluster_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "manager/cluster_settings.h"

namespace lamina {
namespace {

constexpr int kFirstPort = 7430, kHttpPort = 8043;
constexpr int64_t kFewestBatchedTokens = 1024;

std::string Absolute(const std::string& path) {
  // A path that cannot be resolved stays as it is, and the reader of the file says what is wrong
  // with it.
  std::error_code ignored;
  const std::filesystem::path absolute = std::filesystem::weakly_canonical(path, ignored);
  return ignored ? path : absolute.string();
}

// A string in YAML's double quotes.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "\"";
}

// The policy of scheduler/pipeline.h that runs such a schedule.
PipelineMode PipelineOf(const ClusterShape& shape, const Schedule& schedule) {
  if (schedule.rotates) return PipelineMode::kRotational;
  return schedule.num_batches == shape.num_replicas ? PipelineMode::kNone : PipelineMode::kFixed;
}

// The objectives that the plan keeps, for requests that do not wait: "ttft: 2000000us".
std::string SloOf(const PlanOptions& options) {
  const auto microseconds = [](const char* key, double seconds) {
    return fmt::format("{}: {:.0f}us", key, 1e6 * seconds);
  };
  std::string slo;
  if (options.ttft_seconds > 0) slo = microseconds("ttft", options.ttft_seconds);
  if (options.tpot_seconds > 0)
    slo += (slo.empty() ? "" : ", ") + microseconds("tpot", options.tpot_seconds);
  return slo;
}

}  // namespace

Result<std::string> ToClusterYaml(const Prediction& prediction, const ClusterFile& file) {
  const ClusterShape& shape = prediction.shape;
  const bool alone = shape.homogeneous();
  if (alone && shape.num_compute() > 1) {
    return Unimplemented(shape.text() +
                         ": a compute node that keeps the KV cache itself serves without others");
  }
  if (!alone && file.options.latency_us <= 0)
    return InvalidArgument("a cluster file needs a network with a latency above 0");
  std::string yaml = fmt::format(
      "# {}: {:.0f} output tokens/s at {} sequences, {:.1f} ms between tokens, as planned.\n"
      "# On one machine: lamina bench modelled FILE, or lamina cluster up FILE. For real hosts "
      "give each node its host, and leave out "
      "device\n"
      "# and network.\n"
      "version: 1\n\ncluster:\n  name: planned\n  http_port: {}\n  device_catalog: {}\n\nnodes:\n",
      shape.text(), prediction.tokens_per_second / prediction.copies,
      prediction.schedule.sequences(), 1e3 * prediction.tpot_seconds, kHttpPort,
      Quoted(Absolute(file.catalog)));
  int port = kFirstPort;
  for (int i = 0; i < shape.num_compute(); ++i) {
    yaml += fmt::format(
        "- {{name: c{}, role: compute, host: 127.0.0.1, port: {}, device: \"modelled:{}\", {}"
        "price_per_hour: {:.4f}}}\n",
        i, port++, shape.compute, alone ? fmt::format("memory: {}, ", file.memory_bytes) : "",
        file.compute_price);
  }
  for (int i = 0; i < shape.num_memory; ++i) {
    yaml += fmt::format(
        "- {{name: m{}, role: memory, host: 127.0.0.1, port: {}, device: \"modelled:{}\", memory: "
        "{}, price_per_hour: {:.4f}}}\n",
        i, port++, shape.memory, file.memory_bytes, file.memory_price);
  }
  yaml += fmt::format("\nmodel:\n  path: {}\n\n", Quoted(Absolute(file.model_dir)));
  if (!alone && file.compute_nic_gb_per_s != file.memory_nic_gb_per_s) {
    yaml += fmt::format(
        "# Planned with NICs of {} GB/s of compute nodes and {} of memory nodes; here all nodes "
        "have the slower.\n",
        file.compute_nic_gb_per_s, file.memory_nic_gb_per_s);
  }
  if (!alone) {
    yaml += fmt::format("network: {{modelled_latency: {}us, modelled_gb_per_s: {}}}\n",
                        file.options.latency_us,
                        std::min(file.compute_nic_gb_per_s, file.memory_nic_gb_per_s));
  }
  yaml += fmt::format("pipeline: {{policy: {}, num_batches: {}}}\n",
                      PipelineModeName(PipelineOf(shape, prediction.schedule)),
                      prediction.schedule.num_batches);
  if (shape.num_ranks > 1)
    yaml += fmt::format("parallel: {{tensor_parallel_size: {}}}\n", shape.num_ranks);
  const int64_t sequences = prediction.admitted_sequences;
  if (sequences > prediction.schedule.sequences())
    yaml += fmt::format(
        "# The rate needs {} sequences on average; more are let run when requests come in "
        "bursts.\n",
        prediction.schedule.sequences());
  // A step must hold the decoding rows of a batch and the prompts that the plan computes with them.
  // The manager also wants max_num_batched_tokens to be at least max_num_seqs.
  const int64_t rows_of_prompts = file.options.prefill ? kPrefillRows : 0,
                batches = prediction.schedule.num_batches;
  const int64_t batched_tokens = std::max(
      {sequences, (sequences + batches - 1) / batches + rows_of_prompts, kFewestBatchedTokens});
  yaml += fmt::format("limits: {{max_num_seqs: {}, max_num_batched_tokens: {}}}\n", sequences,
                      batched_tokens);
  if (const std::string slo = SloOf(file.options); !slo.empty()) yaml += "slo: {" + slo + "}\n";
  return yaml;
}

}  // namespace lamina
