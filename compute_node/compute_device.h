// What a compute node computes on: this machine's CPU, a GPU (cuda/cuda_device.h), or a device of
// the catalog that is only modelled (modelled_device.h).
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/attention_backend.h"
#include "compute_node/device_link.h"
#include "compute_node/weights.h"
#include "kernels/attention.h"
#include "kernels/sampling.h"
#include "kernels/token_slab.h"
#include "model/model_config.h"
#include "splitter/model_share.h"
#include "splitter/slices.h"
#include "wire/wire_format.h"

namespace lamina {

// Weights as a device keeps them in memory of its own; what they are only that device knows.
class DeviceWeights {
 public:
  virtual ~DeviceWeights() = default;
};

// A model, or this node's share of it, that is ready to run. Immutable.
struct LoadedModel {
  ModelConfig config;
  SlicedModel sliced;  // all slices
  ModelShare share;
  std::vector<int> first_slices;  // as CutIntoStages
  // Of the slices that run here; null where a device has them in its own memory, or none.
  std::unique_ptr<Weights> weights;
  // Likewise, where a device has them; null elsewhere.
  std::unique_ptr<DeviceWeights> device_weights;
  int64_t weight_bytes = 0;  // of those, as stored in the checkpoint

  // Reads config.json, traces and cuts the graph; no weights yet. kInvalidArgument if the model
  // cannot be shared like that.
  static Result<std::unique_ptr<LoadedModel>> Describe(const std::string& model_dir,
                                                       const ModelShare& share = {});

  SliceRange slices() const {
    return {first_slices[static_cast<size_t>(share.stage)],
            first_slices[static_cast<size_t>(share.stage) + 1]};
  }
  int StageOf(int slice) const;
  Graph part() const { return PartOf(sliced, share, slices()); }

  // Describe, and loads the weights into this machine's memory.
  static Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options, WorkerTeam& team);
};

// Runs the slices of a model, all rows of a step together. Thread: one owner.
class SliceRunner {
 public:
  virtual ~SliceRunner() = default;

  // Starts a step of tokens.size() rows. REQUIRES: at most the max_rows that it was made for;
  // tokens in the vocabulary.
  virtual void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) = 0;

  // Runs slice `k`, or what is left of it, to its end; null. Or to the next all-reduce, which it
  // returns: its input is there, and the next Run goes on when its output was written. REQUIRES:
  // slices run in order; before slice k > 0 attention k-1's output was written to
  // value(attention_out).
  virtual const Op* Run(int k) = 0;

  // As Run, but only until q is there; null then. Run(k) then runs the rest. REQUIRES: as Run, and
  // the slice is not the last.
  virtual const Op* RunToQueries(int k) = 0;

  // Keeps only these rows (ascending) from here on: the last slice is only worth running for rows
  // that are sampled. REQUIRES: called after attention k-1 and before Run(k).
  virtual void KeepRows(int k, std::span<const int> rows) = 0;

  // [rows, width] fp32 of a q, k, v, attention output, value of the context, or input or output of
  // an all-reduce that is live now. In the device's memory: only the device and what it made may
  // read or write there.
  virtual float* value(ValueId id) = 0;

  // Chooses next tokens from the logits of kept rows: tokens[i] is the one of work[i], as
  // lamina::Sample chooses it. REQUIRES: the last slice ran; once per row.
  virtual void Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) = 0;
};

// KV that lies on the compute node itself, and attention over it: of prompts while they are
// computed, or of everything in a cluster without memory nodes. Thread: one owner.
class LocalKv {
 public:
  virtual ~LocalKv() = default;

  // As KvStore's.
  virtual Status Append(SequenceId sequence, int64_t position, std::span<const TokenSlot> slots,
                        StepId step) = 0;
  virtual Status AppendDummy(SequenceId sequence, int64_t position,
                             std::span<const TokenSlot> slots, StepId step) {
    return Append(sequence, position, slots, step);  // as a device that keeps no K and V does it
  }
  virtual Status Share(SequenceId sequence, std::span<const TokenSlot> slots, StepId step) = 0;
  virtual void Release(SequenceId sequence) = 0;

  // Stores k and v of `rows` and computes their attention. Row i of q, k, v, out belongs to
  // rows[i]; rows of failed sequences are skipped, new failures are added. Shapes as in
  // AttentionBackend::Start.
  virtual void Attend(int layer, StepId step, std::span<const AttentionWork> rows, const float* q,
                      const float* k, const float* v, float* out, Failures& failures) = 0;
};

// Parts of a value's rows: elements [first, first + width) of each of `rows`. A message has them
// one behind the other.
struct RowParts {
  std::span<const int> rows;  // ascending
  int64_t pitch = 0;          // elements of a whole row
  int64_t first = 0;
  int64_t width = 0;

  // n elements in one piece.
  static RowParts Whole(int64_t n) {
    static constexpr int kFirst = 0;
    return {{&kFirst, 1}, n, 0, n};
  }
  int64_t num_elements() const { return std::ssize(rows) * width; }
};

// What goes into a message.
struct PackedParts {
  const float* value = nullptr;  // as SliceRunner::value
  RowParts parts;
  DType dtype = DType::kF32;  // in the message
};

// Thread: one owner. Outlives what it makes.
class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;

  // Makes a model ready. kOutOfSpace: its weights do not fit. Else as Weights::Load and
  // ModelConfig::Load.
  virtual Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options) = 0;

  // Borrows the model; `max_rows` is the largest step. kOutOfSpace: its values do not fit.
  // kUnimplemented names an operator that the device cannot run.
  virtual Result<std::unique_ptr<SliceRunner>> MakeSlices(const LoadedModel& model,
                                                          int max_rows) = 0;

  // `windows`: by layer, the tokens that a row attends to, itself among them, 0: all; empty: all in
  // every layer. kOutOfSpace if the memory cannot be had.
  virtual Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv,
                                                  const std::vector<int64_t>& windows,
                                                  int64_t capacity_tokens) = 0;

  // Values of slices into a message, one behind the other, rounded to nearest even; returns the end
  // of what was written. A device far from the message wants few large calls.
  virtual std::byte* Pack(std::span<const PackedParts> packed, std::byte* message) = 0;

  // The other way. The message is free again when it returns.
  virtual void Unpack(const std::byte* message, DType dtype, const RowParts& parts,
                      float* value) = 0;
  // Value += message, n elements.
  virtual void AddUnpacked(const std::byte* message, DType dtype, int64_t n, float* value) = 0;

  // A way to a memory node's device. `wire`: between the two; `limit`: of the wait for a reply.
  // Borrows the device. kUnimplemented says why there is none.
  virtual Result<std::unique_ptr<DeviceLink>> MakeLink(const WireShape& /*wire*/,
                                                       Clock::duration /*limit*/) {
    return Unimplemented("the compute node's device is no GPU");
  }
};

// The cores and the memory of this machine.
class CpuDevice final : public ComputeDevice {
 public:
  explicit CpuDevice(WorkerTeam& team) : team_(team) {}

  Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options) override;
  Result<std::unique_ptr<SliceRunner>> MakeSlices(const LoadedModel& model, int max_rows) override;
  Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv,
                                          const std::vector<int64_t>& windows,
                                          int64_t capacity_tokens) override;
  std::byte* Pack(std::span<const PackedParts> packed, std::byte* message) override;
  void Unpack(const std::byte* message, DType dtype, const RowParts& parts, float* value) override;
  void AddUnpacked(const std::byte* message, DType dtype, int64_t n, float* value) override;

 private:
  WorkerTeam& team_;
  std::vector<float> scratch_;  // of AddUnpacked
};

}  // namespace lamina
