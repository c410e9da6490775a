// The fields of a chat request that say what was said and which tools there are. Each function
// keeps the first mistake in `reader`, with the field's name.
#pragma once

#include <set>
#include <string>

#include "api/field_reader.h"
#include "api/requests.h"

namespace lamina {

// The messages, and what the chat template is told besides them.
void ReadChatInput(FieldReader& reader, ChatInput& input);

// Adds the tools to the input and returns their names; none of them if "tool_choice" is "none".
std::set<std::string> ReadTools(FieldReader& reader, ChatInput& input);

// What "tool_choice" demands. REQUIRES: out.tool_names is what ReadTools returned.
void ReadToolChoice(FieldReader& reader, ChatRequest& out);

// OpenAI's older way to name tools.
void RefuseFunctions(FieldReader& reader);

}  // namespace lamina
