// What `lamina bench dollar` compares, from one YAML: shapes, each a way to serve a model for so
// many dollars per hour, under the loads of a sweep. configs/dollar-local.yaml is an example,
// docs/bench-dollar.md names all keys.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "bench/serve/serving_cost.h"
#include "manager/cluster_config.h"

namespace lamina {

enum class ShapeKind {
  kOneProcess,  // the engine and the model in one process, attention local
  kCluster,     // daemons on this machine
  kEndpoint,    // a server that runs already
};

struct SweepShape {
  std::string name;
  ShapeKind kind = ShapeKind::kCluster;
  // kOneProcess: one compute node, whose memory is for KV (0: as much as a point needs). kEndpoint:
  // none.
  ClusterConfig config;
  std::vector<std::string> pipelines;  // kCluster: at least one; else one ""
  std::optional<Prices> prices;
  std::string no_price;  // why there are none
  // The model's name in the report: shapes of one label are held against each other. "": as the
  // server calls it.
  std::string label;

  // kEndpoint:
  std::string url, api_key;
  std::string served_model;  // "": the server's first
  std::string tokenizer;     // folder; "": what the server names, if it is a folder here
};

struct SweepLoad {
  // Requests in flight: when one is answered the next is sent.
  std::vector<int> batches = {1, 4, 16};
  std::vector<int> contexts = {128};  // tokens of each prompt
  int output_tokens = 64;             // of each answer
  // Prompts appear with made-up K and V, and only decoding is measured.
  bool prefill_left_out = false;
  // Requests of a run, as multiple of the batch; 1 without prefill.
  int waves = 1;
  int seed = 0;
  Clock::duration timeout = std::chrono::minutes(10);  // of one request
};

struct Sweep {
  std::string path;  // the YAML
  std::string title;
  std::string price_table;  // catalog with the hourly prices
  SweepLoad load;
  int repeats = 3;
  std::vector<SweepShape> shapes;

  // kInvalidArgument: "FILE:LINE: what is wrong, what was expected"; kNotFound: no such file.
  static Result<Sweep> Load(const std::string& path);
  static Result<Sweep> Parse(const std::string& yaml, const std::string& path);
};

// One set-up under one load.
struct SweepPoint {
  size_t shape = 0;      // index
  std::string pipeline;  // "": the shape knows none
  int context = 0, batch = 0;
};

// In the order in which they are measured: by shape, pipeline, context, batch.
std::vector<SweepPoint> PointsOf(const Sweep& sweep);

// "1 + 2, fixed": the shape, with the pipeline if it has several.
std::string SeriesName(const Sweep& sweep, const SweepPoint& point);

}  // namespace lamina
