// How long a device of the catalog takes for a slice or an attention: its roofline. Pure functions,
// without overheads of launches, hosts or networks; modelled devices wait as long, and planners and
// the ideal of a benchmark add up the same numbers.
//
// Linear layers (Lamina, section 2.2): a step of B rows over N weights is 2 N B operations, and e
// (N + B d) bytes of weights and activations at e bytes per element; attention reads each token's K
// and V once, about one operation per byte. A piece of work takes the longer of operations / (peak
// x MFU(B)) and bytes / reached bandwidth.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "cost/device_catalog.h"
#include "splitter/linear_work.h"
#include "splitter/slices.h"

namespace lamina {

// One run of `work` over `rows` rows; 0 without rows. `dtype`: of weights and activations.
double LinearSeconds(const DeviceSpec& device, const LinearWork& work, DType dtype, int64_t rows);

// One run of slice `k`: as measured, if the device has a profile, with the head by its roofline;
// else as above. REQUIRES: CheckProfile.
double SliceSeconds(const DeviceSpec& device, const SlicedModel& model, int k, DType dtype,
                    int64_t rows);

// The part of it behind q, the projections to k and v: their share of the slice's roofline time.
// REQUIRES: a slice with an attention.
double SecondsBehindQueries(const DeviceSpec& device, const SlicedModel& model, int k, DType dtype,
                            int64_t rows);

// All slices of one step; the last one runs only for the `sampled_rows` whose logits are wanted.
double StepSeconds(const DeviceSpec& device, const SlicedModel& model, DType dtype, int64_t rows,
                   int64_t sampled_rows);

// kInvalidArgument if the device has a profile of layers of another shape, naming both.
Status CheckProfile(const DeviceSpec& device, const ModelConfig& model);

// Makes the device's profile one of this model's layers, split among `workers` devices, so that
// CheckProfile is content: the profile that was measured for them, or one predicted from all that
// the device has (LayerProfile::Predict). Without profiles nothing changes.
Status FitProfile(DeviceSpec& device, const ModelConfig& model, int workers);

// kInvalidArgument: the device has measured times, which are of whole layers, and with
// tensor_parallel_size each node runs a part of each.
Status CheckRanks(const DeviceSpec& device, int num_ranks);

// Attention of one layer over some sequences. Add up what runs together.
struct AttentionLoad {
  int64_t queries = 0;    // rows: each reads its q, writes its output and stores its k and v
  int64_t kv_tokens = 0;  // tokens whose K and V are read
  int64_t pairs = 0;      // of a query and a token that it attends to

  void AddDecode(int64_t context);  // one row over so many tokens
  // Rows at positions first, first + 1, ... of one sequence, causal, each over the last `window`
  // tokens (0: over all).
  void AddPrefill(int64_t first, int64_t count, int64_t window = 0);
};

struct AttentionHeads {
  int num_heads = 0;
  int num_kv_heads = 0;  // divides num_heads
  int head_dim = 0;
  // Of the KV cache; queries and outputs count alike, but with kF8 as 16 bits.
  DType dtype = DType::kBF16;
};

double AttentionOperations(const AttentionHeads& heads, const AttentionLoad& load);

// How many rows look at one token of one kv head, on average: its group of heads in decode, a
// chunk's rows times that in prefill. REQUIRES: load.kv_tokens > 0.
double RowsPerToken(const AttentionHeads& heads, const AttentionLoad& load);

// K and V of 8 bits are widened to 16, so they halve the bytes and leave the arithmetic as it is.
// The utilisation is that measured of attention with so many rows per token, or that of a matrix
// product over so many rows.
double AttentionSeconds(const DeviceSpec& device, const AttentionHeads& heads,
                        const AttentionLoad& load);

// Bytes of all weights that the graph names, each once, at `dtype`.
int64_t WeightBytes(const Graph& graph, DType dtype);

}  // namespace lamina
