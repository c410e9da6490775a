#include "transport/tcp/tcp_wire.h"

#include <xxhash.h>

namespace lamina {

uint32_t TcpFrame::Checksum() const {
  return static_cast<uint32_t>(XXH3_64bits(this, offsetof(TcpFrame, checksum)));
}

}  // namespace lamina
