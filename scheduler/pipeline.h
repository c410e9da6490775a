// How the steps of several batches share the compute nodes while memory nodes attend for others,
// and a chooser that finds the fastest way from measured steps.
//
// Staggering (Lamina, section 5.1): while memory nodes compute the attention of one batch, a
// compute node runs slices of another. With few sequences it only adds latency, since a half-full
// step takes about as long as a full one. So the choice depends on how long slices and attention
// take at the present batch sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lamina {

// Of n compute nodes, node (j + k) mod n runs slice k of batch j if the pipeline rotates; node
// j mod n runs all slices of batch j if it does not.
struct Pipeline {
  int num_batches = 1;  // in flight at a time
  bool rotates = false;

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

// What one decode step took: sums over its layers, in seconds.
struct StepCost {
  double rows = 0;
  double slices = 0;     // on compute nodes, including everything else they do for the step
  double attention = 0;  // on the memory node that took longest
  // The way of q to the memory nodes and of the output back. nullopt if it is not known, as with
  // other batches in flight, where waiting behind them would be counted too.
  std::optional<double> wires;
  // From the result of the batch's last step to the result of this one: the time until each of its
  // sequences has its next token.
  double round = 0;
};

// Chooses a pipeline by what was measured, else by what is predicted. Thread: one owner.
//
// The model: slices, attention and wires are linear in the rows, and rounds are made of them
// (scheduler/round.h). Real pipelines may do worse, for example when nodes share cores. So a
// pipeline that promises more is tried, and from then on its measured rounds count.
class PipelineChooser {
 public:
  // At most `max_batches` are in flight. `stages`: each compute node runs its own range of slices
  // of every batch. Then no pipeline rotates, and all nodes share the work of all batches evenly.
  PipelineChooser(int num_compute_nodes, int max_batches, bool stages = false);

  // Learns from a step that ran with pipeline `now`. The weight of older steps fades. Of a step
  // that took far longer than those before it, as when a node hangs for a moment, only so much
  // counts that others of its kind would have to follow before it changes the choice.
  void Observe(const StepCost& cost, const Pipeline& now);

  // The pipeline with the shortest round for `num_rows` decoding sequences. Among equals (within 3
  // %) the one with the fewest batches, then one that does not rotate. Stays with `now` unless the
  // chosen one is 5 % faster, and until `now` has been observed for long enough.
  Pipeline Choose(int num_rows, const Pipeline& now) const;

  // Seconds of a round by the model alone. REQUIRES: something was observed.
  double Predict(int num_rows, const Pipeline& pipeline) const;

 private:
  // What to assume of the share of y that is proportional to x, below and above the observed x,
  // while all observed x are alike and the share cannot be seen. Guesses are optimistic: one that
  // promises too much is found out by trying the pipeline, one that promises too little never is.
  struct Guess {
    double below, above;
  };
  // The line y = a + b x, fitted by least squares with weights that fade. While all x are alike,
  // the slope that was seen last still holds.
  class Line {
   public:
    explicit Line(Guess guess) : guess_(guess) {}
    void Add(double x, double y);
    double At(double x) const;  // 0 before the first Add

   private:
    const Guess guess_;
    std::optional<double> seen_;  // the share b x / y at the mean, once it was seen
    double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // faded sums
  };
  struct Measured {
    Pipeline pipeline;
    double rows = 0, round = 0;  // faded means; rows of all batches
    int num_rounds = 0;
    int64_t last = 0;  // num_observed_ when it was observed last
  };

  // nullptr if the pipeline has not been observed for long enough.
  const Measured* Find(const Pipeline& pipeline) const;
  // Seconds of a round: measured, if there is a measurement that still holds, else predicted.
  double Round(int num_rows, const Pipeline& pipeline) const;

  const int num_compute_nodes_, max_batches_;
  const bool stages_;
  int64_t num_observed_ = 0;
  // Attention reads each row's own KV, so it is taken to be proportional to the rows. A slice reads
  // its weights whatever the number of rows, or is bound by arithmetic: fewer rows may save time in
  // proportion, and more rows may be free.
  Line slices_{{1, 0}}, attention_{{1, 1}}, wires_{{1, 0}};
  std::vector<Measured> measured_;
};

}  // namespace lamina
