#include "text/time_budget.h"

#include <ctime>
#include <string>
#include <utility>

namespace lamina {
namespace {

// Sanitizers make tokenizers several times as slow, which is no reason to refuse a text.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kSlowdown = 4;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
constexpr int kSlowdown = 4;
#else
constexpr int kSlowdown = 1;
#endif
#else
constexpr int kSlowdown = 1;
#endif

constexpr std::chrono::seconds kTokenizerTime(2 * kSlowdown);
constexpr std::chrono::microseconds kTokenizerTimePerByte(2 * kSlowdown);

std::chrono::nanoseconds ProcessorTime() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

thread_local std::stop_token thread_stop;

}  // namespace

TimeBudget::TimeBudget(std::chrono::nanoseconds allowed, std::string_view too_long)
    : soonest_(Clock::now() + allowed), end_(ProcessorTime() + allowed), too_long_(too_long) {}

// A look at the wall clock costs little; it runs at least as fast as the processor's.
Status TimeBudget::Check() const {
  if (thread_stop.stop_requested()) return TryAgain("the server is shutting down");
  if (Clock::now() < soonest_ || ProcessorTime() < end_) return OkStatus();
  return OutOfSpace(std::string(too_long_));
}

TimeBudget TokenizerTime(size_t text_bytes) {
  return {kTokenizerTime + kTokenizerTimePerByte * text_bytes,
          "the tokenizer takes too long on this text: its regular expressions, added tokens and "
          "merges need more than 2 seconds and 2 "
          "microseconds for each byte"};
}

StopScope::StopScope(std::stop_token stop) { thread_stop = std::move(stop); }
StopScope::~StopScope() { thread_stop = {}; }

}  // namespace lamina
