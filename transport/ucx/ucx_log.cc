#include "transport/ucx/ucx_log.h"

#include <ucs/debug/log_def.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "base/log.h"

namespace lamina {
namespace {

ucs_log_func_rc_t OnUcxMessage(const char* /*file*/, unsigned /*line*/, const char* /*function*/,
                               ucs_log_level_t level, const ucs_log_component_config_t* component,
                               const char* format, va_list arguments) {
  const bool wanted =
      component == nullptr || level <= component->log_level || level == UCS_LOG_LEVEL_PRINT;
  if (!wanted) return UCS_LOG_FUNC_RC_STOP;
  std::array<char, 1024> text{};
  std::vsnprintf(text.data(), text.size(), format, arguments);
  if (level <= UCS_LOG_LEVEL_ERROR) {
    LAMINA_LOG_ERROR("ucx: {}", text.data());
  } else if (level == UCS_LOG_LEVEL_WARN) {
    LAMINA_LOG_WARN("ucx: {}", text.data());
  } else {  // what UCX_LOG_LEVEL asks for
    LAMINA_LOG_INFO("ucx: {}", text.data());
  }
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

void TakeUcxMessages() {
  static const bool taken = [] {
    const char* file = std::getenv("UCX_LOG_FILE");
    if (file != nullptr && *file != '\0') return false;
    ucs_log_push_handler(OnUcxMessage);
    return true;
  }();
  (void)taken;
}

}  // namespace lamina
