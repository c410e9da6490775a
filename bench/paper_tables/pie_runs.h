// Simulated runs for the tables of Pie: a model that keeps its KV cache itself on a GH200, with too
// little memory for what it is asked for.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "bench/paper_tables/paper_tables.h"
#include "plan/simulate/kv_baseline.h"
#include "plan/simulate/simulation.h"

namespace lamina {

// What is served.
struct PieSetup {
  const char *model, *lengths;  // of configs/models; of published means
  double kv_gb = 3;             // of the device's memory
  double request_rate = 0;      // per second; 0: all requests come at once
  int num_requests = 300;

  friend auto operator<=>(const PieSetup& a, const PieSetup& b) { return a.Key() <=> b.Key(); }

 private:
  std::tuple<std::string, std::string, double, double, int> Key() const {
    return {model, lengths, kv_gb, request_rate, num_requests};
  }
};

// How the KV cache is kept.
struct KvPolicy {
  // Layers take turns so that so many times the tokens find room; 1: all stay inside.
  double expansion = 1;
  bool is_adaptive = false;  // the expansion is at most that
  // The last layers of this number always lie outside, so that about `expansion` times the tokens
  // find room, and are copied in and back; 0: they take turns.
  int tail_of_layers = 0;
  bool is_write_through = false;
  std::string baseline = {};  // as KvBaseline::Parse; in place of all these
  // All weights lie outside and come for each layer.
  bool weights_outside = false;
  // Every request is as long as the longest.
  bool is_padded = false;
  // From this second on other copies take half of the link; 0: never.
  double half_link_from_s = 0;
  // With that: tokens per second are counted in so many seconds from then on, but for the first.
  double counted_s = 0, uncounted_s = 0;

  std::string Key() const;
};

// What came of it.
struct PieFigures {
  double tokens_per_s = 0;  // that requests have asked for
  // Of mean length, in the first half of the run, before the last ones run alone.
  double requests_per_s = 0;
  // Means over requests, of their times divided by their tokens.
  double per_token_s = 0;
  // The median time between two tokens.
  double step_s = 0;
  int64_t num_preemptions = 0;

  // Waiting, and computing again, by token.
  double queueing_s() const { return per_token_s - step_s; }
};

// Thread: owner. Each run is made once.
class PieRuns {
 public:
  // Borrows the options.
  explicit PieRuns(const PaperTablesOptions& options) : options_(options) {}

  Result<PieFigures> Run(const PieSetup& setup, const KvPolicy& policy = {});
  // Tokens per second, over those where all layers stay inside.
  Result<double> Gain(const PieSetup& setup, const KvPolicy& policy);

  struct Best {
    double gain = 1, expansion = 1;
  };
  // Of the fixed expansions. `circumstances`: what else of the policy is not as it is by default,
  // also for what it is a gain over.
  Result<Best> BestExpansion(const PieSetup& setup, const KvPolicy& circumstances = {});

 private:
  Result<PieFigures> RunAnew(const PieSetup& setup, const KvPolicy& policy) const;

  const PaperTablesOptions& options_;
  std::map<std::pair<PieSetup, std::string>, PieFigures> known_;
};

// An expansion that follows the load.
KvPolicy Adaptive();

}  // namespace lamina
