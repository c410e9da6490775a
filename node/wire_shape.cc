#include "node/wire_shape.h"

#include <algorithm>
#include <string>

namespace lamina {

Result<WireShape> WireShapeOf(const ConfigureNode& request) {
  const AttentionSpec& spec = request.attention;
  if (IsForKvOnly(spec.wire_dtype))
    return InvalidArgument("queries and outputs cannot travel in " +
                           std::string(DTypeName(spec.wire_dtype)) + ": only the KV cache has it");
  if (request.session_token.size() != kSessionTokenBytes) {
    return InvalidArgument("session token of " + std::to_string(request.session_token.size()) +
                           " bytes, expected " + std::to_string(kSessionTokenBytes));
  }
  return WireShape{.num_heads = spec.num_heads,
                   .num_kv_heads = spec.num_kv_heads,
                   .head_dim = spec.head_dim,
                   .kv_dtype = spec.kv_dtype,
                   .max_rows = request.limits.max_num_seqs,
                   .num_batches = std::max(request.limits.num_batches, 1),
                   .wire_dtype = spec.wire_dtype,
                   .overlap = request.overlap};
}

}  // namespace lamina
