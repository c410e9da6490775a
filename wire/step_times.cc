#include "wire/step_times.h"

#include <algorithm>
#include <cstring>

namespace lamina {
namespace {

// Times of a peer have to be below this, so that their differences do not overflow.
constexpr int64_t kMaxNs = int64_t{1} << 62;

}  // namespace

const char* StepWorkName(StepWork work) {
  switch (work) {
    case StepWork::kStep: return "step";
    case StepWork::kSlice: return "slice";
    case StepWork::kPost: return "post";
    case StepWork::kTake: return "take";
    case StepWork::kSample: return "sample";
    case StepWork::kQWire: return "q wire";
    case StepWork::kQueue: return "queue";
    case StepWork::kAttention: return "attention";
    case StepWork::kOutputWire: return "output wire";
    case StepWork::kBubble: return "bubble";
  }
  return "?";
}

std::string EncodeRecords(std::span<const StepRecord> records) {
  return {reinterpret_cast<const char*>(records.data()), records.size_bytes()};
}

std::optional<std::vector<StepRecord>> DecodeRecords(const std::string& bytes) {
  // The bytes come from another process. Copied, since they need not be aligned.
  if (bytes.size() % sizeof(StepRecord) != 0) return std::nullopt;
  std::vector<StepRecord> records(bytes.size() / sizeof(StepRecord));
  if (!records.empty()) std::memcpy(records.data(), bytes.data(), bytes.size());
  const bool sane = std::ranges::all_of(records, [](const StepRecord& r) {
    return static_cast<size_t>(r.work) < kNumStepWorks && r.start_ns > -kMaxNs &&
           r.start_ns <= r.end_ns && r.end_ns < kMaxNs;
  });
  if (!sane) return std::nullopt;
  return records;
}

std::optional<ReplyTimes> CutReplyTimes(std::span<const std::byte>& payload) {
  if (payload.size() < sizeof(ReplyTimes)) return std::nullopt;
  ReplyTimes times;
  std::memcpy(&times, payload.last(sizeof(times)).data(), sizeof(times));
  const bool sane = times.noticed_ns > -kMaxNs && times.noticed_ns <= times.started_ns &&
                    times.started_ns <= times.done_ns && times.done_ns < kMaxNs &&
                    times.bubble_ns >= 0 && times.bubble_ns < kMaxNs;
  // Cut off even if they are impossible: what is left must have the size of the outputs.
  payload = payload.first(payload.size() - sizeof(times));
  return sane ? std::optional(times) : std::nullopt;
}

}  // namespace lamina
