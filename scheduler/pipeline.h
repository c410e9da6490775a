// How steps of several batches share the compute nodes while memory nodes attend for others, and
// which way is the fastest.
//
// Staggering (Lamina, section 5.1): while memory nodes compute the attention of one batch, a
// compute node runs slices of another. With few sequences it only adds latency: a half-full step
// takes about as long as a full one. So the choice depends on how long slices and attention take at
// the present batch sizes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lamina {

// Of n compute nodes, number (j + k) mod n runs slice k of batch j if it rotates, number j mod n
// runs all of them if not.
struct Pipeline {
  int num_batches = 1;  // in flight at a time
  bool rotates = false;

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

// What one decode step took: sums over its layers, in seconds.
struct StepCost {
  double rows = 0;
  double slices = 0;     // on compute nodes, all else that they do for it included
  double attention = 0;  // on the memory node that took longest
  // Q there and the output back; none: with other batches in flight it is not known.
  std::optional<double> wires;
  // From the result of the batch's step before to this one's: until each sequence has its next
  // token.
  double round = 0;
};

// Chooses a pipeline: what was measured counts, else what is predicted. Pure object.
//
// Slices and attention are taken to be linear in the rows. With n batches of b rows in flight on c
// compute nodes a round takes the longest of: a step's slices, attention and wires one behind the
// other; all batches' slices, shared by c nodes; all batches' attention. Nothing may be that good
// in truth, as when nodes share cores. So a pipeline that promises more is tried, and its rounds
// are measured.
class PipelineChooser {
 public:
  // At most `max_batches` in flight. `stages`: each compute node runs its own range of slices of
  // every batch. Then no pipeline rotates, and all nodes share the work of all batches evenly.
  PipelineChooser(int num_compute_nodes, int max_batches, bool stages = false);

  void Observe(const StepCost& cost, const Pipeline& now);  // older ones fade

  // The pipeline with the shortest round for `num_rows` decoding sequences; among equals (within 3
  // %) the one with the fewest batches, then one that does not rotate. Stays with `now` while that
  // is not 5 % slower, or has not been observed for long enough.
  Pipeline Choose(int num_rows, const Pipeline& now) const;

  // Seconds of a round by the model alone. REQUIRES: something was observed.
  double Predict(int num_rows, const Pipeline& pipeline) const;

 private:
  // The share of y that grows with x, for less and for more x, as long as all x were alike and it
  // could not be seen. A guess that is too good is found out by trying; one that is too bad never.
  struct Guess {
    double below, above;
  };
  // a + b x, fitted with weights that fade. While all x are alike the share that was seen last
  // still holds.
  class Line {
   public:
    explicit Line(Guess guess) : guess_(guess) {}
    void Add(double x, double y);
    double At(double x) const;  // 0 before the first Add

   private:
    const Guess guess_;
    std::optional<double> seen_;                      // share
    double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // faded sums
  };
  struct Measured {
    Pipeline pipeline;
    double rows = 0, round = 0;  // faded means; rows of all batches
    int num_rounds = 0;
    int64_t last = 0;  // observation
  };

  const Measured* Find(const Pipeline& pipeline) const;
  double Round(int num_rows, const Pipeline& pipeline) const;

  const int num_compute_nodes_, max_batches_;
  const bool stages_;
  int64_t num_observed_ = 0;
  // Attention reads every row's own KV. A slice reads its weights whatever the number of rows, or
  // is bound by arithmetic.
  Line slices_{{1, 0}}, attention_{{1, 1}}, wires_{{1, 0}};
  std::vector<Measured> measured_;
};

}  // namespace lamina
