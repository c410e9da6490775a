// What a benchmark, a plan or a simulation serves: a trace or made-up lengths, and when the
// requests come.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "plan/workload/arrivals.h"
#include "plan/workload/request_trace.h"
#include "plan/workload/token_counter.h"

namespace lamina {

struct WorkloadOptions {
  // Auto | random | a format of trace_reader.h; auto: by the file's beginning, random without a
  // file.
  std::string dataset_name = "auto";
  std::string dataset_path;
  std::string input_len = "1024";  // of random: as LengthDistribution::Parse
  std::string output_len = "128";
  // Of random: a name of AllPublishedLengths() instead of the two above.
  std::string lengths_of;
  int64_t num_prompts = 1000;       // 0: all of the trace
  int64_t output_len_override = 0;  // every answer's, whatever the dataset says; 0: the dataset's
  // Longer requests, prompt and answer, are left out; 0: none are.
  int64_t max_total_len = 0;
  std::string request_rate = "inf";  // requests/s | inf: all at once | trace: as the trace has them
  double rate_scale = 1;             // of the trace's own times: 2 is twice the load
  double burstiness = 1;             // as ArrivalOptions; inf: constant gaps
  std::string ramp = "none";         // none | linear | exponential
  double ramp_start = 0, ramp_end = 0;
  uint64_t seed = 0;
};

// At most num_prompts requests with their arrivals: the first ones of a trace that has times, else
// a choice by seed. kInvalidArgument and kNotFound as ReadTrace, and if the options contradict each
// other or nothing is left.
Result<RequestTrace> MakeWorkload(const WorkloadOptions& options, const TokenCounter& counter);

}  // namespace lamina
