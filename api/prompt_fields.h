// The fields of requests that have to do with their prompts and with when they are served, and that
// all of them have, whatever is asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "api/field_reader.h"
#include "api/requests.h"

namespace lamina {

// Of a list of token ids.
inline constexpr size_t kMaxTokensOfField = size_t{1} << 24;

// Text, token ids, or a list of either: the field `name`, which is required. At most `max_count` of
// them.
void ReadPrompts(FieldReader& reader, const std::string& name, int64_t vocab_size, size_t max_count,
                 std::vector<Prompt>& prompts);

// 'truncate_prompt_tokens' and 'truncation_side', which is `side` unless the request has it.
void ReadTruncation(FieldReader& reader, std::string side, GenerationOptions& out);

// vLLM's 'priority', and objectives in milliseconds: {"ttft_ms": 500, "tpot_ms": 50}.
void ReadUrgency(FieldReader& reader, GenerationOptions& out);

// 'request_id', which stands in answers and in the log.
void ReadIdentity(FieldReader& reader, GenerationOptions& out);

}  // namespace lamina
