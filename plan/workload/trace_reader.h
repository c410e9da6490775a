// Reads published traces and datasets:
//
//   azure     CSV "TIMESTAMP,ContextTokens,GeneratedTokens": Azure Public Dataset, LLM inference
//             traces of 2023 and 2024.
//   burstgpt  CSV with "Timestamp" in seconds, "Request tokens" and "Response tokens"; other
//             columns are ignored: BurstGPT.
//   mooncake  A JSON object a line: "timestamp" in ms, "input_length", "output_length", "hash_ids"
//             (one per 512 tokens): Mooncake.
//   sharegpt  A JSON list of {"conversations": [{"value": TEXT}, ...]}: the first turn and its
//             answer. As `vllm bench serve` does, only those with 4 to 1024 tokens of prompt, at
//             least 4 of answer and at most 2048 of both are taken.
//   alpaca    A JSON list of {"instruction", "input", "output"}: Stanford Alpaca.
#pragma once

#include <string>

#include "base/status.h"
#include "plan/workload/request_trace.h"
#include "plan/workload/token_counter.h"

namespace lamina {

// In the order of the list above.
enum class TraceFormat { kAzure, kBurstGpt, kMooncake, kShareGpt, kAlpaca };

// From its name in the list above. kInvalidArgument lists the names.
Result<TraceFormat> ParseTraceFormat(const std::string& name);

// From the beginning of the file. kNotFound if it cannot be opened; kInvalidArgument, with the
// names of all formats, if the beginning is that of none, or if it is no regular file.
Result<TraceFormat> DetectTraceFormat(const std::string& path);

// The whole trace, with arrivals in order from 0 on. Requests without a token of prompt or of
// answer are left out and counted. `counter` is asked only for datasets of texts. kNotFound if the
// file cannot be read; kInvalidArgument as "FILE:LINE: what is wrong, what was expected".
Result<RequestTrace> ReadTrace(const std::string& path, TraceFormat format,
                               const TokenCounter& counter);

}  // namespace lamina
