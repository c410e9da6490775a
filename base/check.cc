#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace lamina {

void CheckFailed(const char* file, int line, const char* condition, const std::string& message) {
  std::fprintf(stderr, "lamina: %s:%d: %s (expected: %s)\n", file, line, message.c_str(),
               condition);
  std::abort();
}

}  // namespace lamina
