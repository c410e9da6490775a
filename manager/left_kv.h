// What a manager that is gone left on memory nodes, put together for the scheduler.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/ids.h"
#include "base/kv_handle.h"
#include "wire/session_messages.h"

namespace lamina {

// K and V of a sequence's first tokens, in these slots of a pool.
struct LeftTokens {
  NodeId pool;
  std::vector<TokenSlot> slots;
};

// Of what each memory node says, what one pool alone has, and all of its nodes have, where these
// hold different heads of the same tokens. `by_node` has an entry for each memory node; `pool_of`
// says which pool it is part of.
std::map<KvHandle, LeftTokens> FindLeft(const std::map<NodeId, LeftKv>& by_node,
                                        const std::function<NodeId(NodeId)>& pool_of);

}  // namespace lamina
