// A cluster that a plan considers, and what the cost model says about it.
#pragma once

#include <cstdint>
#include <string>

namespace lamina {

// Which devices, and how many of each. Compute nodes are either replicas of the whole model or
// ranks that share it with tensor parallelism. Memory nodes hold the KV cache; without them the
// compute nodes do (a homogeneous cluster).
struct ClusterShape {
  std::string compute;  // a device of the catalog
  int num_replicas = 1;
  int num_ranks = 1;   // 1 if there are several replicas
  std::string memory;  // a device of the catalog; "": homogeneous
  int num_memory = 0;

  bool homogeneous() const { return num_memory == 0; }
  int num_compute() const { return num_replicas * num_ranks; }
  // "2 x H100 (tensor parallel) + 4 x H20".
  std::string text() const;
};

// How a cluster takes its steps: num_batches batches in flight, of `rows` decoding sequences each.
struct Schedule {
  int num_batches = 1;
  int64_t rows = 0;
  // The slices of a batch run on one replica after the other (a rotational pipeline); else each
  // batch stays on its replica.
  bool rotates = false;

  int64_t sequences() const { return num_batches * rows; }
};

// What would help most if there were twice of it. kRequests: nothing, as the cluster could serve
// more than is asked for.
enum class Bottleneck {
  kCompute,
  kWeightBandwidth,
  kKvBandwidth,
  kKvCapacity,
  kNetwork,
  kSlo,
  kRequests
};
// For people: "KV capacity".
const char* BottleneckName(Bottleneck limit);

// What the cost model says about a shape at its best schedule.
struct Prediction {
  ClusterShape shape;
  Schedule schedule;
  // How many sequences the KV cache holds or the options allow. The schedule may have fewer.
  int64_t max_sequences = 0;
  // How many sequences a cluster should let run at a time. Without a rate those of the schedule.
  // With a rate the schedule carries the mean load; as requests come in bursts, this is then the
  // number at which its pipeline gives the most.
  int64_t admitted_sequences = 0;
  // How many clusters of the shape there are, if the rate is too high for one.
  int copies = 1;
  // Output tokens of all copies. With a rate: as many as are asked for.
  double tokens_per_second = 0;
  // What the copies can give. Without a rate: the same.
  double most_tokens_per_second = 0;
  // Between two tokens of a sequence.
  double tpot_seconds = 0;
  // From a request to its first token, where no request waits: its prompt and one round.
  double ttft_seconds = 0;
  double price_per_hour = 0;  // of all copies
  double tokens_per_dollar = 0;
  // Parts of one step. The network's is both ways in all layers, and lamina's all-reduces, with
  // nothing hidden by overlap.
  double linear_seconds = 0, attention_seconds = 0, network_seconds = 0;
  // For the prompts between two steps, on each replica.
  double prefill_seconds = 0;
  // What a compute node's NIC needs for q, k, v and outputs to take no longer than the linear
  // layers. 0: homogeneous.
  double needed_gb_per_s = 0;
  Bottleneck limit = Bottleneck::kCompute;
};

}  // namespace lamina
