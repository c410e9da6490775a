// How steps of several batches share the compute nodes while memory nodes attend for others, and which way is the fastest.
//
// Staggering (Lamina, section 4.3): while memory nodes compute the attention of one batch, a compute node runs slices of another. With few
// sequences it only adds latency: a half-full step takes about as long as a full one. So the choice depends on how long slices and
// attention take at the present batch sizes.
#pragma once

namespace lamina {

// Of n compute nodes, number (j + k) mod n runs slice k of batch j if it rotates, number j mod n runs all of them if not.
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
  double wires = 0;      // q there and the output back
};

// Chooses a pipeline from the steps that were measured. Pure object.
//
// Slices and attention are taken to be linear in the rows. With n batches of b rows in flight on c compute nodes a step of each takes the
// longest of: its own slices, attention and wires one behind the other; all batches' slices, shared by c nodes; all batches' attention.
class PipelineChooser {
 public:
  // At most `max_batches` in flight.
  PipelineChooser(int num_compute_nodes, int max_batches);

  void Observe(const StepCost& cost);  // older ones fade

  // The pipeline that gives each of `num_rows` decoding sequences its next token soonest; among equals (within 3 %) the one with the fewest
  // batches, then one that does not rotate. Stays with `now` unless that is 5 % slower. Before anything was observed: `now`.
  Pipeline Choose(int num_rows, const Pipeline& now) const;

  // Seconds until each of `num_rows` sequences has its next token. REQUIRES: something was observed.
  double Predict(int num_rows, const Pipeline& pipeline) const;

 private:
  // a + b x, fitted with weights that fade. With all x alike, `slope_share` of y is taken to grow with x.
  class Line {
   public:
    explicit Line(double slope_share) : slope_share_(slope_share) {}
    void Add(double x, double y);
    double At(double x) const;

   private:
    const double slope_share_;
    double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;  // faded sums
  };

  const int num_compute_nodes_, max_batches_;
  bool observed_ = false;
  // A few rows cost a slice its weights, whatever their number; attention reads every row's own KV.
  Line slices_{0.1}, attention_{1.0}, wires_{0.5};
};

}  // namespace lamina
