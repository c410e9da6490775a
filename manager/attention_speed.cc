#include "manager/attention_speed.h"

namespace lamina {

bool AttentionSpeed::Update(const MemoryStats& now) {
  const int64_t messages = now.attention_messages - before_.attention_messages;
  const int64_t us = now.attention_us - before_.attention_us;
  const int64_t tokens = now.attended_tokens - before_.attended_tokens;
  before_ = now;
  if (messages <= 0 || tokens <= 0 || us < kMeaningfulUs * messages) return false;
  const double measured = static_cast<double>(tokens) / static_cast<double>(us);
  value_ = value_ ? (*value_ + measured) / 2 : measured;
  return true;
}

}  // namespace lamina
