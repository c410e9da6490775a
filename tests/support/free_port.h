// Ports for servers that a test starts as processes of their own.
#pragma once

namespace lamina {

// A TCP port on which nothing listens and which no other test gets before this process ends: it is
// reserved by a lock on a file in the temporary folder, and lies below the range from which the
// kernel takes the source ports of outgoing connections. Throws when none is left.
int FreePort();

}  // namespace lamina
