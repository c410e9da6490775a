// What `lamina bench dollar` compares, from one YAML file: shapes, each a way to serve a model for
// so many dollars per hour, under the loads of a sweep. configs/dollar-local.yaml is an example;
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

// Where a shape runs.
enum class ShapeKind {
  kOneProcess,  // the engine and the model in one process, attention local
  kCluster,     // daemons on this machine
  kEndpoint,    // a server that runs already
};

// One way to serve.
struct SweepShape {
  std::string name;
  ShapeKind kind = ShapeKind::kCluster;
  // kOneProcess: one compute node, whose memory is for KV (0: as much as a point needs). kEndpoint:
  // unused.
  ClusterConfig config;
  // kCluster: one or more, each of which is measured. Else one nullopt.
  std::vector<std::optional<PipelineMode>> pipelines;
  std::optional<Prices> prices;
  std::string no_price;  // why there are no prices
  // The model's name in the report: shapes of one label are compared. "": the name that the server
  // gives.
  std::string label;

  // kEndpoint only, as the next three.
  std::string url, api_key;
  // With https: a file of CA certificates that are trusted instead of the system's; "": those of
  // the system.
  std::string ca_file;
  std::string served_model;  // "": the server's first
  // A folder; "": the one that the server names, if it is a folder here.
  std::string tokenizer;
};

// The loads: every batch with every context.
struct SweepLoad {
  // Requests in flight: when one is answered the next is sent.
  std::vector<int> batches = {1, 4, 16};
  std::vector<int> contexts = {128};  // tokens of each prompt
  int output_tokens = 64;             // of each answer
  // Prompts appear with made-up K and V, and only decoding is measured.
  bool prefill_left_out = false;
  // Requests of a run, as a multiple of the batch. 1 if prefill is left out.
  int waves = 1;
  int seed = 0;
  Clock::duration timeout = std::chrono::minutes(10);  // of one request
};

// A value.
struct Sweep {
  std::string path;  // of the YAML file
  std::string title;
  // The catalog with the hourly prices.
  std::string price_table;
  SweepLoad load;
  int repeats = 3;  // measured runs of each point
  std::vector<SweepShape> shapes;

  // kNotFound if there is no such file; kInvalidArgument as "FILE:LINE: what is wrong, what was
  // expected", for all mistakes at once.
  static Result<Sweep> Load(const std::string& path);
  // The same for the text of a file; other paths in it are relative to `path`.
  static Result<Sweep> Parse(const std::string& yaml, const std::string& path);
};

// One shape and pipeline under one load.
struct SweepPoint {
  size_t shape = 0;  // index into Sweep::shapes
  // nullopt: shapes of this kind have none.
  std::optional<PipelineMode> pipeline;
  int context = 0, batch = 0;
};

// All points in the order in which they are measured: by shape, pipeline, context and batch.
std::vector<SweepPoint> PointsOf(const Sweep& sweep);

// "1 + 2, fixed": the name of the shape, with the pipeline if it has several.
std::string SeriesName(const Sweep& sweep, const SweepPoint& point);

}  // namespace lamina
