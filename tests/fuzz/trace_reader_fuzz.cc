// Any bytes are a trace or an error that names the file. The first byte chooses the format.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "plan/workload/trace_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using lamina::TraceFormat;
  constexpr TraceFormat kFormats[] = {TraceFormat::kAzure, TraceFormat::kBurstGpt,
                                      TraceFormat::kMooncake, TraceFormat::kShareGpt,
                                      TraceFormat::kAlpaca};
  static const int file = memfd_create("trace", 0);
  if (size == 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, data + 1, size - 1, 0) != static_cast<ssize_t>(size - 1))
    return 0;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  const auto trace = lamina::ReadTrace(path, kFormats[data[0] % 5], lamina::EstimatedTokens());
  if (!trace.ok()) {
    if (trace.status().message().find(path) == std::string::npos) std::abort();
    return 0;
  }
  double before = 0;
  for (const lamina::TraceRequest& request : trace->requests) {
    if (request.input_tokens < 1 || request.output_tokens < 1 ||
        !(request.arrival_seconds >= before))
      std::abort();
    before = request.arrival_seconds;
  }
  return 0;
}
