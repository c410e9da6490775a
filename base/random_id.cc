#include "base/random_id.h"

#include <random>

namespace lamina {

uint64_t RandomId() {
  std::random_device device;
  const uint64_t id = static_cast<uint64_t>(device()) << 32 | device();
  return id == 0 ? 1 : id;
}

}  // namespace lamina
