// The interface of what a compute node computes on: this machine's CPU (CpuDevice below), a GPU
// (cuda/cuda_device.h), or a device of the catalog that is only modelled (modelled_device.h). A
// ComputeDevice makes the other objects of this file; make_compute_device.h makes the
// ComputeDevice.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "base/worker_team.h"
#include "compute_node/attention_layers.h"
#include "compute_node/attention_strategy.h"
#include "compute_node/device_link.h"
#include "compute_node/weights.h"
#include "grammar/model_vocabulary.h"
#include "kernels/attention.h"
#include "kernels/kv_cache.h"
#include "kernels/sampling.h"
#include "kernels/token_slab.h"
#include "model/model_config.h"
#include "splitter/model_share.h"
#include "splitter/offload_options.h"
#include "splitter/slices.h"
#include "wire/session_messages.h"
#include "wire/wire_format.h"

namespace lamina {

// Weights in a device's own memory, in a form that only that device knows.
class DeviceWeights {
 public:
  virtual ~DeviceWeights() = default;

  // As LoadedModel's.
  virtual void SetInterval(int) {}
};

// A model, or this node's share of it, that is ready to run. Immutable, but for what lies outside
// its memory.
struct LoadedModel {
  ModelConfig config;
  SlicedModel sliced;  // all slices, also those that run on other nodes
  ModelShare share;
  std::vector<int> first_slices;  // of each stage, and the number of slices behind them
  // The weights of the slices that run here: in this machine's memory, or in a device's own. Both
  // are null for a device that computes nothing.
  std::unique_ptr<Weights> weights;
  std::unique_ptr<DeviceWeights> device_weights;
  int64_t weight_bytes = 0;  // of these weights, as stored in the checkpoint
  AttentionSinks sinks;      // of all layers, and of this rank's heads
  int largest_interval = 0;  // as Configured::largest_interval
  // Of the folder's tokenizer, which only constrained texts need. Not null.
  std::shared_ptr<ModelVocabulary> vocabulary;

  // Whether the tokens of steps are chosen on this node, unless another has the whole model too.
  bool ends_steps() const { return share.stage + 1 == share.num_stages && share.rank == 0; }

  // Reads config.json, and traces and cuts the graph; loads no weights. kInvalidArgument if the
  // model cannot be divided as `share` says.
  static Result<std::unique_ptr<LoadedModel>> Describe(const std::string& model_dir,
                                                       const ModelShare& share = {});

  // The slices that run on this node.
  SliceRange slices() const {
    return {first_slices[static_cast<size_t>(share.stage)],
            first_slices[static_cast<size_t>(share.stage) + 1]};
  }
  // The operators that run on this node, whose weights it needs.
  Graph part() const { return PartOf(sliced, share, slices()); }

  // Of every so many slices in a row the weights of the last lie outside from now on; 0: none do.
  // Has no effect on a model all of whose weights stay in memory. Thread: that of its runners.
  void SetInterval(int interval) const;

  // Does what Describe does, and loads the weights into this machine's memory, except for what
  // `offload` leaves outside.
  static Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options, WorkerTeam& team,
                                                   const OffloadOptions& offload = {});
};

// A model on its way into a device's memory, one weight at a time, so that whoever loads it can do
// other things in between. Destroying it ends the loading. Thread: one owner, the device's.
class LoadingModel {
 public:
  virtual ~LoadingModel() = default;

  // Loads one more weight. Null while there are more; then the model, and after that, or an error,
  // it is not called again. Errors are those of ComputeDevice::StartLoad.
  virtual Result<std::unique_ptr<LoadedModel>> Continue() = 0;
  virtual WeightsProgress progress() const = 0;
  // Before then Continue has nothing to do.
  virtual TimePoint wake_at() const { return {}; }
};

// Runs the slices of a model for one batch, all rows of a step together.
//
// Per step: Begin; then for each slice k Run, perhaps after RunToQueries; KeepRows before the last
// slice; then Score, if there is anything to score, and Sample. Thread: one owner.
class SliceRunner {
 public:
  virtual ~SliceRunner() = default;

  // Starts a step of tokens.size() rows. REQUIRES: at most max_rows of MakeSlices; every token is
  // in the vocabulary.
  virtual void Begin(std::span<const TokenId> tokens, std::span<const int32_t> positions) = 0;

  // Runs slice `k`, or what is left of it, to its end and returns nullptr. If an all-reduce comes
  // first, stops there and returns it: its input is complete, the caller writes its output, and the
  // next Run(k) goes on behind it. REQUIRES: slices run in order; before slice k > 0 the output of
  // attention k - 1 was written to value(attention_out).
  virtual const Op* Run(int k) = 0;

  // Runs slice `k` until q is complete and returns nullptr; Run(k) then runs the rest. Stops at
  // all-reduces as Run does. REQUIRES: as for Run, and the slice is not the last.
  virtual const Op* RunToQueries(int k) = 0;

  // Drops all rows but these (ascending) for the rest of the step: the last slice is needed only
  // for rows that are sampled or scored. REQUIRES: called after attention k - 1 and before Run(k).
  virtual void KeepRows(int k, std::span<const int> rows) = 0;

  // [rows, width] fp32: a q, k, v, attention output, value of the context, or input or output of an
  // all-reduce that is live now. The memory is the device's: only the device and what it has made
  // may read or write there.
  virtual float* value(ValueId id) = 0;

  // Says how likely tokens of prompts are by the logits of kept rows: scores[i] for work[i], as
  // lamina::Score does. REQUIRES: the last slice has run, and Sample was not called.
  virtual void Score(std::span<const ScoreWork> work, std::span<TokenScore> scores) = 0;

  // Chooses next tokens from the logits of kept rows: tokens[i] for work[i], by the rules of
  // lamina::Sample. REQUIRES: the last slice has run; once per row.
  virtual void Sample(std::span<const SampleWork> work, std::span<SampledToken> tokens) = 0;
};

// A KV cache on the compute node itself, and attention over it: for prompts while they are
// computed, or for everything in a cluster without memory nodes. Thread: one owner.
class LocalKv {
 public:
  virtual ~LocalKv() = default;

  // The tables, and the K and V that Attend writes and reads.
  virtual KvCache& cache() = 0;

  // Stores k and v of `rows` and computes their attention. Row i of the values belongs to rows[i].
  // Rows of sequences in `failures` are skipped, and new failures are added to it.
  virtual void Attend(const AttentionValues& values, StepId step,
                      std::span<const AttentionWork> rows, Failures& failures) = 0;
};

// A part of each of some rows of a value: elements [first, first + width) of each of `rows`. In a
// message these parts follow each other without gaps.
struct RowParts {
  std::span<const int> rows;  // ascending
  int64_t pitch = 0;          // elements of a whole row
  int64_t first = 0;
  int64_t width = 0;

  // n elements in one piece: one row of n elements.
  static RowParts Whole(int64_t n) {
    static constexpr int kFirst = 0;
    return {{&kFirst, 1}, n, 0, n};
  }
  int64_t num_elements() const { return std::ssize(rows) * width; }
};

// A piece of a message that ComputeDevice::Pack writes. REQUIRES: head_dim is set if the dtype has
// scales.
struct PackedParts {
  const float* value = nullptr;  // from SliceRunner::value
  RowParts parts;
  DType dtype = DType::kF32;  // in the message
  // Of K and V: a part's width is so many elements times the number of kv_heads, and a row of the
  // message is that of KvRowBytes. 0: the dtype has no scales.
  int head_dim = 0;

  // In the message.
  int64_t num_bytes() const {
    const int64_t width = head_dim > 0 ? head_dim : parts.width;
    return width > 0 ? KvRowBytes(dtype, parts.num_elements() / width, width) : 0;
  }
};

// One device. Owns its memory, and must outlive everything that it makes. Thread: one owner.
class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;

  // Begins to load a model, or this node's share of it, so that it can run. kOutOfSpace if the
  // weights do not fit. Other errors are those of reading the model's folder, and name the file;
  // kInvalidArgument also if the model cannot be divided as the options' share says.
  virtual Result<std::unique_ptr<LoadingModel>> StartLoad(const WeightOptions& options) = 0;
  // The same to its end.
  Result<std::unique_ptr<LoadedModel>> Load(const WeightOptions& options);

  // Makes a runner for steps of up to `max_rows` rows. Borrows the model. kOutOfSpace if the values
  // of such steps do not fit, with what they need and what there is; kUnimplemented, with the
  // operator's name, if the device cannot run one.
  virtual Result<std::unique_ptr<SliceRunner>> MakeSlices(const LoadedModel& model,
                                                          int max_rows) = 0;

  // Makes a KV cache of `capacity_tokens` slots. kOutOfSpace if the memory cannot be allocated.
  virtual Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv,
                                                  const AttentionLayers& layers,
                                                  int64_t capacity_tokens) = 0;

  // Copies values from the device's memory into a message, one part after the other, rounded to the
  // nearest value of the part's dtype (ties to even), with scales as by PackKvRow. Returns the end
  // of what was written. A call may be costly for a device that is far from the message, so callers
  // pack as much as they can at once.
  virtual std::byte* Pack(std::span<const PackedParts> packed, std::byte* message) = 0;

  // Copies a part of a message into a value. The message may be overwritten when the call returns.
  virtual void Unpack(const std::byte* message, DType dtype, const RowParts& parts,
                      float* value) = 0;
  // Adds n elements of a message to a value.
  virtual void AddUnpacked(const std::byte* message, DType dtype, int64_t n, float* value) = 0;

  // Makes this end of a link to a memory node's device. `wire` is the shape of the messages between
  // the two, `limit` how long the device waits for a reply. Borrows the device. kUnimplemented,
  // with the reason, if the device has no links.
  virtual Result<std::unique_ptr<DeviceLink>> MakeLink(const WireShape& wire,
                                                       Clock::duration limit) = 0;
};

// The cores and the memory of this machine.
class CpuDevice final : public ComputeDevice {
 public:
  explicit CpuDevice(WorkerTeam& team, ComputeOffload offload = {})
      : team_(team), offload_(std::move(offload)) {}

  Result<std::unique_ptr<LoadingModel>> StartLoad(const WeightOptions& options) override;
  Result<std::unique_ptr<SliceRunner>> MakeSlices(const LoadedModel& model, int max_rows) override;
  Result<std::unique_ptr<LocalKv>> MakeKv(const AttentionShape& shape, const KvShape& kv,
                                          const AttentionLayers& layers,
                                          int64_t capacity_tokens) override;
  std::byte* Pack(std::span<const PackedParts> packed, std::byte* message) override;
  void Unpack(const std::byte* message, DType dtype, const RowParts& parts, float* value) override;
  void AddUnpacked(const std::byte* message, DType dtype, int64_t n, float* value) override;
  Result<std::unique_ptr<DeviceLink>> MakeLink(const WireShape&, Clock::duration) override {
    return Unimplemented("the compute node's device is no GPU");
  }

 private:
  WorkerTeam& team_;
  const ComputeOffload offload_;
  std::vector<float> scratch_;  // for AddUnpacked
};

}  // namespace lamina
