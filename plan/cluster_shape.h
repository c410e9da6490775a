// A cluster that a plan considers, and what the cost model says about it.
#pragma once

#include <cstdint>
#include <string>

namespace lamina {

// Compute nodes are replicas of the whole model, or ranks that share it with tensor parallelism.
// Memory nodes hold the KV cache; without them the compute nodes do (a homogeneous cluster).
struct ClusterShape {
  std::string compute;  // device of the catalog
  int num_replicas = 1;
  int num_ranks = 1;   // one of the two is 1
  std::string memory;  // device of the catalog; "": homogeneous
  int num_memory = 0;

  bool homogeneous() const { return num_memory == 0; }
  int num_compute() const { return num_replicas * num_ranks; }
  std::string text() const;  // "2 x H100 (tensor parallel) + 4 x H20"
};

// Steps of so many batches in flight, of so many rows each.
struct Schedule {
  int num_batches = 1;
  int64_t rows = 0;
  bool rotates = false;  // slices of a batch on one replica after the other

  int64_t sequences() const { return num_batches * rows; }
};

// What would help most if there were twice of it. Requests: the cluster could serve more than come.
enum class Bottleneck {
  kCompute,
  kWeightBandwidth,
  kKvBandwidth,
  kKvCapacity,
  kNetwork,
  kSlo,
  kRequests
};
const char* BottleneckName(Bottleneck limit);  // "KV capacity"

struct Prediction {
  ClusterShape shape;
  Schedule schedule;
  // That the KV cache holds, or the options allow; the schedule may have fewer.
  int64_t max_sequences = 0;
  // That a cluster lets run at a time: the schedule's; with a rate, whose mean load the schedule
  // carries, those with which its pipeline gives the most: requests come in bursts.
  int64_t admitted_sequences = 0;
  int copies = 1;                     // of the shape, for a rate that is too high for one
  double tokens_per_second = 0;       // output, of all copies; with a rate: what is asked for
  double most_tokens_per_second = 0;  // that the copies can give; without a rate: the same
  double tpot_seconds = 0;            // between two tokens of a sequence
  // Prompt computed and first token out, in a cluster where nobody waits.
  double ttft_seconds = 0;
  double price_per_hour = 0;  // of all copies
  double tokens_per_dollar = 0;
  // Of one step. Network: both ways, all layers, and lamina's all-reduces, nothing hidden.
  double linear_seconds = 0, attention_seconds = 0, network_seconds = 0;
  double prefill_seconds = 0;  // of prompts between two steps, on each replica
  // Of a compute node's NIC, so that q, k, v and outputs take no longer than the linear layers; 0:
  // homogeneous.
  double needed_gb_per_s = 0;
  Bottleneck limit = Bottleneck::kCompute;
};

}  // namespace lamina
