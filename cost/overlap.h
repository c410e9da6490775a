// With overlap q goes to the memory nodes before k and v. How much of the attention begins then is
// known to the memory node, which does it, and to the simulator, which adds up its times.
#pragma once

#include <cstdint>

namespace lamina {

// Of the `rows` decoding rows of a message, those at its beginning that a memory node attends to,
// over the tokens that it has stored, before k and v are there. One row of four is left until then:
// while it is computed, the outputs of the other rows travel already.
constexpr int64_t RowsBegunEarly(int64_t rows) { return rows - rows / 4; }

}  // namespace lamina
