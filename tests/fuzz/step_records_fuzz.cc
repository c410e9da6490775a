// Feeds foreign bytes to the decoders of step records and of the times in a reply. What they accept
// must be safe to compute with, and must encode to the bytes that it came from.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "wire/step_times.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  if (const auto records = lamina::DecodeRecords(bytes)) {
    if (lamina::EncodeRecords(*records) != bytes) std::abort();
    for (const lamina::StepRecord& record : *records) {
      if (record.end_ns - record.start_ns < 0 || lamina::StepWorkName(record.work)[0] == '?')
        std::abort();
    }
  }
  std::span<const std::byte> payload = std::as_bytes(std::span(data, size));
  if (const auto times = lamina::CutReplyTimes(payload)) {
    if (payload.size() + sizeof(*times) != size) std::abort();
    if (times->done_ns - times->noticed_ns < 0 ||
        times->started_ns - times->bubble_ns > times->started_ns)
      std::abort();
  }
  return 0;
}
