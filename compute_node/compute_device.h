// What a compute node computes on: this machine's CPU, or a device of the catalog that is only modelled (modelled_device.h).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/ids.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/attention_backend.h"
#include "compute_node/weights.h"
#include "kernels/attention.h"
#include "kernels/sampling.h"
#include "kernels/token_slab.h"
#include "splitter/model_config.h"
#include "splitter/model_share.h"
#include "splitter/slices.h"

namespace lamina {

// A model, or this node's share of it, that is ready to run. Immutable.
struct LoadedModel {
  ModelConfig config;
  SlicedModel sliced;  // all slices
  ModelShare share;
  std::vector<int> first_slices;     // as CutIntoStages
  std::unique_ptr<Weights> weights;  // of the slices that run here; null on a modelled device
  int64_t weight_bytes = 0;          // of those, as stored in the checkpoint

  // Reads config.json, traces and cuts the graph; no weights yet. kInvalidArgument if the model cannot be shared like that.
  static Result<std::unique_ptr<LoadedModel>> Describe(const std::string& model_dir, const ModelShare& share = {});

  SliceRange slices() const { return {first_slices[static_cast<size_t>(share.stage)], first_slices[static_cast<size_t>(share.stage) + 1]}; }
  int StageOf(int slice) const;
  Graph part() const { return PartOf(sliced, share, slices()); }

  // Describe, and loads the weights into this machine's memory.
  static Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options, WorkerTeam& team);
};

// Runs the slices of a model, all rows of a step together. Thread: one owner, except where it says any.
class SliceRunner {
 public:
  virtual ~SliceRunner() = default;

  // Starts a step of tokens.size() rows. REQUIRES: at most the max_rows that it was made for; tokens in the vocabulary.
  virtual void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) = 0;

  // Runs slice `k`, or what is left of it, to its end; null. Or to the next all-reduce, which it returns: its input is there, and the next
  // Run goes on when its output was written. REQUIRES: slices run in order; before slice k > 0 attention k-1's output was written to
  // value(attention_out).
  virtual const Op* Run(int k) = 0;

  // As Run, but only until q is there; null then. Run(k) then runs the rest. REQUIRES: as Run, and the slice is not the last.
  virtual const Op* RunToQueries(int k) = 0;

  // Keeps only these rows (ascending) from here on: the last slice is only worth running for rows that are sampled.
  // REQUIRES: called after attention k-1 and before Run(k).
  virtual void KeepRows(int k, std::span<const int> rows) = 0;

  // [rows, width] fp32 of a q, k, v, attention output, value of the context, or input or output of an all-reduce that is live now.
  virtual float* value(ValueId id) = 0;

  // Chooses the next token from the logits of kept row `row`. REQUIRES: the last slice ran; once per row. Thread: any, one row each.
  virtual SampledToken Sample(size_t row, const SamplingParams& params, const SampleContext& context) = 0;
};

// KV that lies on the compute node itself, and attention over it: of prompts while they are computed, or of everything in a cluster without
// memory nodes. Thread: one owner.
class LocalKv {
 public:
  virtual ~LocalKv() = default;

  // As KvStore's.
  virtual Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step) = 0;
  virtual Status AppendDummy(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots, StepId step) {
    return Append(sequence, position, slots, step);  // as a device that keeps no K and V does it
  }
  virtual Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) = 0;
  virtual void Release(SequenceId sequence) = 0;

  // Stores k and v of `rows` and computes their attention. Row i of q, k, v, out belongs to rows[i]; rows of failed sequences are skipped,
  // new failures are added. Shapes as in AttentionBackend::Start.
  virtual void Attend(int layer, StepId step, std::span<const AttentionWork> rows, const float* q, const float* k, const float* v,
                      float* out, Failures& failures) = 0;
};

// Thread: one owner. Outlives what it makes.
class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;

  // Makes a model ready. kOutOfSpace: its weights do not fit. Else as Weights::Load and ModelConfig::Load.
  virtual Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options) = 0;

  // Borrows the model; `max_rows` is the largest step.
  virtual std::unique_ptr<SliceRunner> MakeSlices(const LoadedModel& model, int max_rows) = 0;

  // `windows`: by layer, the tokens that a row attends to, itself among them, 0: all; empty: all in every layer. kOutOfSpace if the memory
  // cannot be had.
  virtual Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv, const std::vector<int64_t>& windows,
                                                  int64_t capacity_tokens) = 0;

  // n elements from a value of a slice into a message that has them as `dtype` (round to nearest even), and back.
  virtual void Pack(const float* value, int64_t n, DType dtype, std::byte* message) = 0;
  virtual void Unpack(const std::byte* message, int64_t n, DType dtype, float* value) = 0;
  virtual void AddUnpacked(const std::byte* message, int64_t n, DType dtype, float* value) = 0;  // value += message
};

// The cores and the memory of this machine.
class CpuDevice final : public ComputeDevice {
 public:
  explicit CpuDevice(WorkerTeam& team) : team_(team) {}

  Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options) override;
  std::unique_ptr<SliceRunner> MakeSlices(const LoadedModel& model, int max_rows) override;
  Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv, const std::vector<int64_t>& windows,
                                          int64_t capacity_tokens) override;
  void Pack(const float* value, int64_t n, DType dtype, std::byte* message) override;
  void Unpack(const std::byte* message, int64_t n, DType dtype, float* value) override;
  void AddUnpacked(const std::byte* message, int64_t n, DType dtype, float* value) override;

 private:
  WorkerTeam& team_;
  std::vector<float> scratch_;  // of AddUnpacked
};

}  // namespace lamina
