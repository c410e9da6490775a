#include "splitter/placement.h"

#include <algorithm>

namespace lamina {

int Placement::StageOf(int slice) const {
  const auto behind = std::ranges::upper_bound(first_slices_, slice);
  return static_cast<int>(behind - first_slices_.begin()) - 1;
}

}  // namespace lamina
