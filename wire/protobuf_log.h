// What libprotobuf has to say of messages that cannot be parsed.
#pragma once

namespace lamina {

// From now on it goes to the log, at level debug: whoever parses a message says what was wrong with
// it, and from whom it came. Else libprotobuf writes to stderr on its own. Call once from main.
void TakeProtobufLog();

}  // namespace lamina
