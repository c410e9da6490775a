// What a benchmark, a plan or a simulation serves: a trace or made-up lengths, and when its
// requests arrive.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "plan/workload/arrivals.h"
#include "plan/workload/request_trace.h"
#include "plan/workload/token_counter.h"

namespace lamina {

// The options of the command line, as texts where they are read here.
struct WorkloadOptions {
  // "random", a format of trace_reader.h, or "auto": as the beginning of the file says, random
  // without a file.
  std::string dataset_name = "auto";
  std::string dataset_path;
  // For random: lengths as LengthDistribution::Parse reads them.
  std::string input_len = "1024";
  std::string output_len = "128";
  // For random: a name of AllPublishedLengths() in place of the two above.
  std::string lengths_of;
  int64_t num_prompts = 1000;  // 0: all of the trace
  // Length of every answer, whatever the dataset says. 0: the dataset's.
  int64_t output_len_override = 0;
  // Requests of more tokens, prompt and answer, are left out. 0: none are.
  int64_t max_total_len = 0;
  // Requests per second, "inf" for all at once, or "trace" for the trace's own times.
  std::string request_rate = "inf";
  // For the trace's own times: 2 is twice the load.
  double rate_scale = 1;
  // The shape of the gaps' gamma distribution (ArrivalOptions); infinity: constant gaps.
  double burstiness = 1;
  std::string ramp = "none";  // none | linear | exponential
  double ramp_start = 0, ramp_end = 0;
  uint64_t seed = 0;
};

// At most num_prompts requests with their arrivals: the first ones of a trace that has times, else
// a random choice by seed. kNotFound if a file cannot be read or a name is unknown;
// kInvalidArgument as "FILE:LINE: ..." for a file, or if options contradict each other or no
// request is left.
Result<RequestTrace> MakeWorkload(const WorkloadOptions& options, const TokenCounter& counter);

}  // namespace lamina
