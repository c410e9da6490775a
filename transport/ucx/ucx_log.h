// What UCX has to say, among lamina's own log lines.
#pragma once

namespace lamina {

// From here on UCX's messages go into lamina's log, on stderr: by itself UCX writes them to stdout,
// into what a command prints for programs. With UCX_LOG_FILE set UCX keeps its own log. Thread:
// any; only the first call does something.
void TakeUcxMessages();

}  // namespace lamina
