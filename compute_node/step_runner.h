// Carries out ComputeOrders: slices, attention, sampling. This is where a decode step happens on a
// compute node.
//
// Each batch has at most one step under way. While memory nodes compute the attention of one batch,
// slices of another are run. Several compute nodes divide the work in one of three ways: each runs
// whole batches; or each runs some of the slices of every batch, and the batch's context goes from
// node to node; or several run each slice together, and a batch also waits at all-reduces, while
// other batches run.
//
// Use: Begin for each order; then Advance again and again, and Sleep when it has nothing to do.
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
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

// Thread: one owner.
class StepRunner {
 public:
  // Borrows model and device. kOutOfSpace if the values of all batches' steps do not fit into the
  // device's memory; kUnimplemented if the device cannot run an operator of the model.
  static Result<std::unique_ptr<StepRunner>> Create(const LoadedModel& model,
                                                    const SessionLimits& limits,
                                                    std::unique_ptr<AttentionBackend> attention,
                                                    ComputeDevice& device);

  // Makes devices end their waits for memory nodes early: freeing memory of a device waits for what
  // is under way on it.
  ~StepRunner() { attention_->GiveUp(); }
  StepRunner(const StepRunner&) = delete;
  StepRunner& operator=(const StepRunner&) = delete;

  // Begins the step of an order. kInvalidArgument if there is no such batch, its last step is still
  // under way, or this node has a share of the model and has not joined the others yet.
  Status Begin(ComputeOrder order);

  // Makes this one of several compute nodes. Contexts and partial sums travel in `wire_dtype`.
  // REQUIRES: no step was begun.
  void JoinOthers(std::unique_ptr<ContextExchange> others, DType wire_dtype);

  bool idle() const { return num_under_way_ == 0; }
  bool among_several() const { return others_ != nullptr; }

  // Runs the next slice of a batch whose attention is complete; returns false if there is none. If
  // a step ends with it here, appends its result to `results`. What goes wrong in a step is in its
  // result, by sequence and by node. A step fails as a whole only if another compute node is lost;
  // then all steps under way end.
  bool Advance(std::vector<StepResult>& results);

  // Sleeps until Advance may have something to do, or one of `fds` is readable. REQUIRES: not
  // idle(), and Advance has just returned false.
  void Sleep(std::span<const int> fds) {
    attention_->Sleep(fds, others_ == nullptr ? Deadline(TimePoint::max())
                                              : Deadline::After(others_->sign_interval()));
  }

  StepTrace& trace() { return trace_; }

 private:
  StepRunner(const LoadedModel& model, const SessionLimits& limits,
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
    std::vector<int> sampled;  // indices of the rows whose logits choose a token
  };
  struct Batch {
    std::unique_ptr<SliceRunner> slices;
    bool under_way = false;
    bool rotates = false;
    bool has_context = false;           // for next_slice, if the slice before it ran elsewhere
    TimePoint waits_since{};            // when waiting for that context began
    int next_slice = 0;                 // the next one that runs here, or the one that is run
    bool sent_queries = false;          // q of next_slice has been sent, k and v have not
    size_t num_rows = 0;                // of next_slice; fewer in the last slice
    size_t first_prefill = 0;           // rows[first_prefill..] are prefill
    AttentionBackend::Traffic counted;  // the part of the traffic that is in `result` already
    Rows rows;
    Failures failures;
    StepResult result;
    TimePoint start;
    int64_t start_ns = 0;  // 0: not timed
  };

  // In all of these `number` is that of a batch.

  // Takes the tokens of new sequences out of the order.
  void UpdateSequences(ComputeOrder& order);
  Rows Collect(const ComputeOrder& order, Failures& failures) const;
  Status Check(const ComputeWork& work) const;
  // Takes the place of AddRows for work with made-up K and V.
  Status AppendDummy(const ComputeWork& work, StepId step) const;
  Status Share(const ComputeWork& work, StepId step) const;
  static void AddRows(const ComputeWork& work, Rows& rows);
  void Learn(const ComputeWork& work);
  // The compute node that runs the slice, as an index into the nodes of ContextExchange.
  int NodeOf(int number, int slice) const;
  bool RunsHere(int number, int slice) const {
    return others_ == nullptr || NodeOf(number, slice) == others_->self();
  }
  const Op& AttentionBefore(int slice) const;
  // The batch that is to run next; -1 if none is ready.
  int NextReady();
  // Whether everything that the batch's next slice needs is here. Takes what has come for it.
  bool Ready(int number);
  Status TakeContext(int number);
  bool Reducing(int number) const { return sums_ != nullptr && sums_->under_way(number); }
  // Runs the batch's next slice, or the part of it up to an all-reduce, and starts the attention
  // that follows. Returns true if the step ends here.
  bool RunSlice(int number);
  void RunToAttention(int number);
  // SliceRunner::Run for the batch's next slice, timed.
  const Op* RunPart(int number);
  // Sends this rank's part of a sum. After the step's last sum only rank 0 goes on.
  void Reduce(int number, const Op& op);
  // Adds up a sum whose parts have all come. False if a rank is lost.
  bool TakeSum(int number);
  // Starts the attention after `slice` for another compute node, and hands the context to it.
  void PassOn(int number, int slice, int64_t ran_ns);
  // Nothing more of the batch's step runs here.
  void Leave(int number);
  // Adds failures, lost nodes and traffic of the attention since the last call to the result.
  void Account(int number);
  // Ends the timing of the step here and adds this node's times to the result.
  void TellTimes(int number);
  // Samples and completes the result.
  StepResult End(int number);
  // Ends all steps under way, because another compute node is lost.
  void AbandonAll(const LostNode& lost, std::vector<StepResult>& results);
  void SampleRows(Batch& batch);
  TracedWork Traced(int number, int layer) const;

  const LoadedModel& model_;
  const SessionLimits limits_;
  StepTrace trace_;
  std::unique_ptr<AttentionBackend> attention_;
  ComputeDevice& device_;
  DType wire_dtype_ = DType::kF32;           // of contexts and partial sums
  std::unique_ptr<ContextExchange> others_;  // null: this is the only compute node
  std::unique_ptr<AllReduce> sums_;          // null: each slice runs on one node
  std::vector<Batch> batches_;
  int num_under_way_ = 0;
  int last_ = 0;  // the batch that ran last
  std::unordered_map<SequenceId, Sequence> sequences_;
};

}  // namespace lamina
