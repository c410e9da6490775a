// Carries out ComputeOrders: slices, attention, sampling. This is where a decode step happens on a
// compute node.
//
// Each batch has at most one step under way. While memory nodes compute the attention of one batch,
// slices of another are run. With several compute nodes each runs its share of the batches, or of
// each batch's slices: then the context goes from node to node. Or several run each slice together:
// then a batch also waits at all-reduces, and others run meanwhile.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "compute_node/all_reduce.h"
#include "compute_node/attention_backend.h"
#include "compute_node/compute_device.h"
#include "compute_node/context_exchange.h"
#include "compute_node/step_trace.h"
#include "kernels/sampling.h"
#include "wire/control.pb.h"

namespace lamina {

// Thread: one owner.
class StepRunner {
 public:
  // Borrows model and device. Errors as ComputeDevice::MakeSlices.
  static Result<std::unique_ptr<StepRunner>> Create(const LoadedModel& model,
                                                    const control::Limits& limits,
                                                    std::unique_ptr<AttentionBackend> attention,
                                                    ComputeDevice& device);

  // What is under way on devices that wait for others ends early: they are waited for when memory
  // of theirs is freed.
  ~StepRunner() { attention_->GiveUp(); }
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Takes an order. kInvalidArgument: there is no such batch, or its step before is still under
  // way.
  Status Begin(const control::ComputeOrder& order);

  // From here on this is one of several compute nodes. REQUIRES: no step was begun.
  void JoinOthers(std::unique_ptr<ContextExchange> others, DType wire_dtype);

  bool idle() const { return num_under_way_ == 0; }
  bool among_several() const { return others_ != nullptr; }

  // Runs the next slice of a batch whose attention is complete; false: none is. The result of a
  // step that ended here goes to `results`. A step never fails as a whole, unless another compute
  // node is lost: what went wrong stands in its result, by sequence and by node.
  bool Advance(std::vector<control::StepResult>& results);

  // Until Advance may have something to do, or one of `fds` is readable. REQUIRES: not idle(), and
  // Advance had nothing to do.
  void Sleep(std::span<const int> fds) {
    attention_->Sleep(fds, others_ == nullptr ? Deadline(TimePoint::max())
                                              : Deadline::After(others_->sign_interval()));
  }

  StepTrace& trace() { return trace_; }

 private:
  StepRunner(const LoadedModel& model, const control::Limits& limits,
             std::unique_ptr<AttentionBackend> attention, ComputeDevice& device);

  struct Sequence {
    std::vector<TokenId> tokens;  // prompt, then what was generated
    size_t num_prompt = 0;
    SamplingParams sampling;
  };
  struct Rows {
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions;
    std::vector<AttentionWork> attention;
    std::vector<int> sampled;  // those whose logits choose a token
  };
  struct Batch {
    std::unique_ptr<SliceRunner> slices;
    bool under_way = false;
    bool rotates = false;
    bool has_context = false;           // for next_slice, from the node that ran the one before
    TimePoint waits_since{};            // for it
    int next_slice = 0;                 // that runs here, or is run
    bool sent_queries = false;          // of next_slice
    size_t num_rows = 0;                // of next_slice
    size_t first_prefill = 0;           // rows[first_prefill..] are prefill
    AttentionBackend::Traffic counted;  // is in `result`
    Rows rows;
    Failures failures;
    control::StepResult result;
    TimePoint start;
    int64_t start_ns = 0;  // 0: not timed
  };

  void UpdateSequences(const control::ComputeOrder& order);
  Rows Collect(const control::ComputeOrder& order, Failures& failures) const;
  Status Check(const control::ComputeWork& work) const;
  Status AppendDummy(const control::ComputeWork& work, StepId step) const;  // instead of AddRows
  Status Share(const control::ComputeWork& work, StepId step) const;
  static void AddRows(const control::ComputeWork& work, Rows& rows);
  void Learn(const control::ComputeWork& work);
  int NodeOf(int number, int slice) const;  // index among the compute nodes
  bool RunsHere(int number, int slice) const {
    return others_ == nullptr || NodeOf(number, slice) == others_->self();
  }
  const Op& AttentionBefore(int slice) const;
  int NextReady();  // batch; -1: none
  bool Ready(int number);
  Status TakeContext(int number);
  bool Reducing(int number) const { return sums_ != nullptr && sums_->under_way(number); }
  // The next one, or as far as an all-reduce, and starts the attention behind it; true: the step
  // ends here.
  bool RunSlice(int number);
  void RunToAttention(int number);
  const Op* RunPart(int number);  // as SliceRunner::Run
  void Reduce(int number, const Op& op);
  bool TakeSum(int number);
  void PassOn(int number, int slice, int64_t ran_ns);
  void Leave(int number);  // nothing more of the step runs here
  void Account(int number);
  void TellTimes(int number);
  control::StepResult End(int number);
  void AbandonAll(const LostNode& lost, std::vector<control::StepResult>& results);
  void SampleRows(Batch& batch);
  TracedWork Traced(int number, int layer) const;

  const LoadedModel& model_;
  const control::Limits limits_;
  StepTrace trace_;
  std::unique_ptr<AttentionBackend> attention_;
  ComputeDevice& device_;
  DType wire_dtype_ = DType::kF32;           // of contexts
  std::unique_ptr<ContextExchange> others_;  // null: this is the only compute node
  std::unique_ptr<AllReduce> sums_;          // null: each slice runs on one node
  std::vector<Batch> batches_;
  int num_under_way_ = 0;
  int last_ = 0;  // the batch that ran last
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace lamina
