// How long a device of the catalog takes for a slice or an attention, by its roofline or by
// measured times of layers. Pure functions, without overheads of launches, hosts or networks.
// Modelled devices wait for these times, and planners and the ideal schedules of benchmarks add
// them up.
//
// Linear layers (Lamina, section 2.2): a step of B rows over N weights has 2 N B operations, and
// moves e (N + B d) bytes of weights and activations, with e bytes per element (quantized weights:
// their own). Attention reads each token's K and V once, about one operation per byte. A piece of
// work takes the longer of operations / (peak x MFU(B)) and bytes / reached bandwidth. All times
// are in seconds.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "cost/device_catalog.h"
#include "splitter/linear_work.h"
#include "splitter/slices.h"

namespace lamina {

// One run of the work over `rows` rows; 0 without rows. `dtype` is that of activations and of
// weights that are not quantized; quantized ones are read as they are stored and computed at
// `dtype`.
double LinearSeconds(const DeviceSpec& device, const LinearWork& work, DType dtype, int64_t rows);

// One run of slice `k`. If the device has a profile, its measured times, with the roofline for the
// head, which profiles do not contain; else LinearSeconds. REQUIRES: a profile is of layers of this
// model's shape, as FitProfile makes it.
double SliceSeconds(const DeviceSpec& device, const SlicedModel& model, int k, DType dtype,
                    int64_t rows);

// The part of SliceSeconds that follows the projection to q, which is the projections to k and v.
// It is their share of the slice's roofline time. REQUIRES: the slice ends with an attention.
double SecondsBehindQueries(const DeviceSpec& device, const SlicedModel& model, int k, DType dtype,
                            int64_t rows);

// All slices of one step. The last one runs only for the `sampled_rows` whose logits are wanted.
double StepSeconds(const DeviceSpec& device, const SlicedModel& model, DType dtype, int64_t rows,
                   int64_t sampled_rows);

// Replaces the device's profile by one of this model's layers, split among `workers` devices: the
// one that was measured for them, else one that is predicted from all profiles of the device. A
// device without profiles stays as it is. kInvalidArgument if LayerProfile::Predict cannot predict
// one, and for a model whose weights are quantized, as those of profiles are not.
Status FitProfile(DeviceSpec& device, const ModelConfig& model, int workers);

// kInvalidArgument if the device has a profile and num_ranks is more than 1: measured times are of
// whole layers, and with tensor parallelism each node runs a part of each layer.
Status CheckRanks(const DeviceSpec& device, int num_ranks);

// Attention of one layer over sequences whose attention runs together.
struct AttentionLoad {
  int64_t queries = 0;    // rows; each reads its q, writes its output and stores its k and v
  int64_t kv_tokens = 0;  // tokens whose K and V are read
  int64_t pairs = 0;      // pairs of a query and a token that it attends to

  // Adds one row that attends to `context` tokens.
  void AddDecode(int64_t context);
  // Adds rows at positions [first, first + count) of one sequence, with causal attention, each to
  // the tokens up to itself that are in its window.
  void AddPrefill(int64_t first, int64_t count, const AttentionWindow& window = {});
};

struct AttentionHeads {
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;
  // Of the KV cache. Queries and outputs have the same, but 16 bits if that has 8.
  DType dtype = DType::kBF16;
};

double AttentionOperations(const AttentionHeads& heads, const AttentionLoad& load);

// How many query rows attend to one token of one kv head, on average. In decode these are the heads
// that share the kv head, in prefill that number times the rows of the chunk that see the token.
// REQUIRES: load.kv_tokens > 0.
double RowsPerToken(const AttentionHeads& heads, const AttentionLoad& load);

// The roofline time of the load; 0 if it reads no tokens. K and V of 8 bits are widened to 16
// before they are used, so they halve the bytes and leave the arithmetic as it is. The utilisation
// is that of DeviceSpec::AttentionMfu at RowsPerToken.
double AttentionSeconds(const DeviceSpec& device, const AttentionHeads& heads,
                        const AttentionLoad& load);

// Bytes of all weights of the graph as they are stored, plain numbers at `dtype`. A weight that
// several operators use counts once.
int64_t WeightBytes(const Graph& graph, DType dtype);

}  // namespace lamina
