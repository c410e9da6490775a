// What names a sequence's KV beyond the life of its manager.
#pragma once

#include <compare>
#include <cstdint>

#include "base/ids.h"

namespace lamina {

// Which sequence's K and V memory nodes hold, also when its manager is gone and another one numbers
// its sequences anew. The default is that of none.
struct KvHandle {
  SequenceId sequence;   // as that manager numbered it
  uint64_t manager = 0;  // a number that the manager has drawn when it began; 0: none

  friend constexpr auto operator<=>(const KvHandle&, const KvHandle&) = default;
};

}  // namespace lamina
