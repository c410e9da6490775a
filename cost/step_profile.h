// Measured times of whole steps of one model on one cluster, by what a step computes and by how
// much of the weights lies outside of memory meanwhile. `lamina bench record` measures them.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// One measurement, or one that is wanted. Value type.
struct StepTime {
  // A step that computes a prompt: `rows` tokens behind `context` others of one sequence. Or one
  // that decodes: `rows` sequences with `context` tokens each, on average.
  bool is_prefill = false;
  int interval = 0;  // OffloadOptions::interval
  double rows = 0;
  double context = 0;
  double seconds = 0;
};

// Thread: any, as long as it does not change.
class StepProfile {
 public:
  // At each interval, decode times have to be there for all combinations of the numbers of rows and
  // contexts that occur with it, and prefill times likewise. kInvalidArgument names what is missing
  // or there twice, or says that there are no decode times.
  static Result<StepProfile> Of(std::span<const StepTime> times);

  // Reads the file that ToCsv makes. kNotFound if it is not there; kInvalidArgument as "FILE:LINE:
  // what is wrong", and those of Of.
  static Result<StepProfile> Load(const std::string& path);
  static std::string ToCsv(std::span<const StepTime> times);

  // The intervals that were measured when decoding, ascending, but 0, where nothing lies outside,
  // at the end: the times of steps decrease.
  const std::vector<int>& intervals() const { return intervals_; }

  // Between measured numbers of rows and contexts times are linear in each (bilinear); beyond the
  // largest they go on as between the last two, and below the smallest they stay the same. An
  // interval without measurements has the times of the next smaller one. REQUIRES: some interval is
  // not larger; for PrefillSeconds, has_prefill().
  double DecodeSeconds(int interval, double rows, double context) const {
    return Seconds(decode_, interval, rows, context);
  }
  double PrefillSeconds(int interval, double rows, double context) const {
    return Seconds(prefill_, interval, rows, context);
  }
  bool has_prefill() const { return !prefill_.empty(); }

 private:
  struct Grid {
    std::vector<double> rows, contexts;        // ascending
    std::vector<std::vector<double>> seconds;  // [rows][contexts]
  };
  // By interval, in the order of intervals(): 0 comes last.
  struct ByOutside {
    bool operator()(int a, int b) const { return a != 0 && (b == 0 || a < b); }
  };
  using Grids = std::map<int, Grid, ByOutside>;

  static Result<Grids> GridsOf(std::span<const StepTime> times, bool is_prefill);
  static double Seconds(const Grids& grids, int interval, double rows, double context);

  Grids decode_, prefill_;
  std::vector<int> intervals_;
};

}  // namespace lamina
