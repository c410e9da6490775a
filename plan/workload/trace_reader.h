// Readers of published traces and datasets.
//
//   azure      CSV "TIMESTAMP,ContextTokens,GeneratedTokens": Azure Public Dataset, LLM inference
//   traces of 2023 and 2024 burstgpt   CSV with "Timestamp" in seconds, "Request tokens", "Response
//   tokens", other columns are ignored: BurstGPT mooncake   a JSON object a line: "timestamp" in
//   ms, "input_length", "output_length", "hash_ids" (one per 512 tokens): Mooncake sharegpt   a
//   JSON list of {"conversations": [{"value": TEXT}, ...]}: first turn and its answer, within 4 to
//   1024 tokens of prompt and
//              2048 of both, as `vllm bench serve` takes them
//   alpaca     a JSON list of {"instruction", "input", "output"}: Stanford Alpaca
#pragma once

#include <string>

#include "base/status.h"
#include "plan/workload/request_trace.h"
#include "plan/workload/token_counter.h"

namespace lamina {

enum class TraceFormat { kAzure, kBurstGpt, kMooncake, kShareGpt, kAlpaca };

// kInvalidArgument lists the names.
Result<TraceFormat> ParseTraceFormat(const std::string& name);

// By the file's beginning. kInvalidArgument lists what is known.
Result<TraceFormat> DetectTraceFormat(const std::string& path);

// Arrivals begin at 0 and are in order; requests without a token of prompt or answer are left out
// and counted. `counter` is asked only for datasets of text. kNotFound: no such file;
// kInvalidArgument: "FILE:LINE: what is wrong, what was expected".
Result<RequestTrace> ReadTrace(const std::string& path, TraceFormat format,
                               const TokenCounter& counter);

}  // namespace lamina
