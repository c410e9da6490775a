// Fields of OpenAI's and vLLM's requests that would change the answer and have no effect here: each
// is refused by name, unless its value means what is done anyway.
#pragma once

#include "api/field_reader.h"

namespace lamina {

// Of both paths, besides those that constrain the output.
void RefuseForeignFields(FieldReader& reader);

// Of chats only.
void RefuseForeignChatFields(FieldReader& reader);

}  // namespace lamina
