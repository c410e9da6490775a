#include "bench/profile/layer_times.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/clock.h"
#include "compute_node/slice_executor.h"
#include "plan/statistics.h"

namespace lamina {
namespace {

constexpr int kFewestSteps = 3, kMostSteps = 50;
constexpr double kSecondsPerCase = 0.5;

using Column = double LayerTimes::*;
constexpr Column kColumns[] = {&LayerTimes::input_norm, &LayerTimes::qkv,       &LayerTimes::rope,
                               &LayerTimes::output,     &LayerTimes::post_norm, &LayerTimes::up,
                               &LayerTimes::activation, &LayerTimes::down,      &LayerTimes::add,
                               &LayerTimes::head};

// In which column each operator of a slice counts; null for none. The last addition ends a layer:
// what follows it belongs to the next layer, or to the head.
std::vector<Column> ColumnsOf(const Slice& slice) {
  const std::vector<Op>& program = slice.program;
  const auto is_add = [](const Op& op) { return op.kind == OpKind::kAdd; };
  const auto is_matrix = [](const Op& op) { return op.kind == OpKind::kLinear; };
  const bool ends_layer = slice.attention_out >= 0, ends_model = slice.attention < 0;
  const auto next_layer = std::find_if(program.rbegin(), program.rend(), is_add).base();
  const auto first_matrix = std::find_if(program.begin(), next_layer, is_matrix);
  const auto last_matrix =
      std::find_if(std::make_reverse_iterator(next_layer), program.rend(), is_matrix);
  std::vector<Column> columns;
  for (auto op = program.begin(); op != program.end(); ++op) {
    const bool is_norm = op->kind == OpKind::kRmsNorm || op->kind == OpKind::kLayerNorm;
    Column column = nullptr;
    // Reading a few rows of a table takes no time to speak of.
    if (op->kind == OpKind::kEmbedding || op->kind == OpKind::kPositionEmbedding) {
      column = nullptr;
    } else if (op >= next_layer || !ends_layer) {
      column = ends_model       ? &LayerTimes::head
               : is_matrix(*op) ? &LayerTimes::qkv
               : is_norm        ? &LayerTimes::input_norm
                                : &LayerTimes::rope;
    } else if (is_matrix(*op)) {
      column = op == first_matrix      ? &LayerTimes::output
               : &*op == &*last_matrix ? &LayerTimes::down
                                       : &LayerTimes::up;
    } else {
      column = op->kind == OpKind::kExperts ? &LayerTimes::up
               : is_add(*op)                ? &LayerTimes::add
               : is_norm                    ? &LayerTimes::post_norm
                                            : &LayerTimes::activation;
    }
    columns.push_back(column);
  }
  return columns;
}

LayerTimes RunStep(const SlicedModel& model, const std::vector<std::vector<Column>>& columns,
                   std::span<const TokenId> tokens, SliceExecutor& slices) {
  LayerTimes sum;
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  slices.Begin(tokens, positions);
  for (size_t k = 0; k < model.slices.size(); ++k) {
    const Slice& slice = model.slices[k];
    // In place of attention: any numbers that cannot become infinite.
    if (slice.attention_out >= 0) {
      const auto elements = static_cast<int64_t>(tokens.size()) * slices.width(slice.attention_out);
      std::fill_n(slices.value(slice.attention_out), elements, 0.01f);
    }
    for (size_t i = 0; i < slice.program.size(); ++i) {
      const TimePoint start = Clock::now();
      slices.RunTo(static_cast<int>(k), slice.program[i].output);
      if (columns[k][i] != nullptr) sum.*columns[k][i] += SecondsSince(start);
    }
    // Ends the slice; RunTo has run all of it.
    slices.Run(static_cast<int>(k));
  }
  return sum;
}

}  // namespace

std::vector<LayerTimes> MeasureLayers(const LoadedModel& model, const std::vector<int64_t>& rows,
                                      WorkerTeam& team,
                                      const std::function<void(const LayerTimes&)>& done) {
  std::vector<std::vector<Column>> columns;
  for (const Slice& slice : model.sliced.slices) columns.push_back(ColumnsOf(slice));
  const auto num_layers = static_cast<double>(model.sliced.attentions.size());
  std::vector<LayerTimes> all;
  for (const int64_t count : rows) {
    SliceExecutor slices(model.sliced, *model.weights, static_cast<int>(count),
                         static_cast<int>(count), team);
    const std::vector<TokenId> tokens(static_cast<size_t>(count), TokenId{0});
    RunStep(model.sliced, columns, tokens, slices);  // warms up
    std::vector<LayerTimes> steps;
    const TimePoint start = Clock::now();
    while (std::ssize(steps) < kFewestSteps ||
           (SecondsSince(start) < kSecondsPerCase && std::ssize(steps) < kMostSteps))
      steps.push_back(RunStep(model.sliced, columns, tokens, slices));
    LayerTimes times;
    times.rows = count;
    for (const Column column : kColumns) {
      std::vector<double> samples;
      for (const LayerTimes& step : steps) samples.push_back(step.*column);
      times.*column =
          Percentile(std::move(samples), 0.5) / (column == &LayerTimes::head ? 1 : num_layers);
    }
    all.push_back(times);
    if (done) done(times);
  }
  return all;
}

std::string ToCsv(const ModelConfig& model, const std::vector<LayerTimes>& times) {
  std::string csv =
      "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
      "layernorm_ms,attn_pre_proj_ms,attn_rope_ms,"
      "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_ms,"
      "add_ms\n";
  for (const LayerTimes& t : times) {
    csv += fmt::format("{},{},{},{},{},1", model.num_heads, model.num_kv_heads, model.hidden_size,
                       model.intermediate_size, t.rows);
    for (const double seconds : {t.input_norm, t.qkv, t.rope, t.output, t.post_norm, t.up,
                                 t.activation, t.down, t.add / 2})
      csv += fmt::format(",{:.6g}", 1e3 * seconds);
    csv += '\n';
  }
  return csv;
}

}  // namespace lamina
