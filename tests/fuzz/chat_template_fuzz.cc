// Chat templates come with models: whatever stands in one, parsing and rendering end, without a
// crash and within their limits.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "text/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parsed =
      lamina::ChatTemplate::Parse(std::string(reinterpret_cast<const char*>(data), size),
                                  {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
  if (!parsed.ok()) {
    if (parsed.status().message().empty()) std::abort();
    return 0;
  }
  lamina::ChatInput input;
  input.messages.resize(2);
  input.messages[0] = {
      "user", "Hello \xE2\x98\x83", {{"name", "Ann"}, {"list", {1, 2.5, nullptr, true}}}};
  input.messages[1] = {"assistant", " hi ", nlohmann::json::object()};
  (void)parsed.value()->Render(input).ok();
  return 0;
}
