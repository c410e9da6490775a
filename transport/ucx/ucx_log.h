// Takes UCX's messages into lamina's log.
#pragma once

namespace lamina {

// From here on UCX's messages go into lamina's log, which is on stderr. UCX by itself would write
// them to stdout, among what a command prints for programs. If UCX_LOG_FILE is set UCX keeps its
// own log. Only the first call has an effect. Thread: any.
void TakeUcxMessages();

}  // namespace lamina
