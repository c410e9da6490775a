// The limit on file descriptors of this process, and a reserve of them that accepted connections
// may not use up.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace lamina {

// Raises the soft limit on open files to the hard limit: the usual soft limit of 1,024 is too low
// for a server. To be called when the program starts; programs that it starts inherit the limit.
void RaiseDescriptorLimit();

// The present soft limit.
size_t DescriptorLimit();

// A quarter of the descriptors is reserved for the program itself: for its own connections, logs
// and events. Returns true when no more than these are left; whoever accepts a connection should
// then close another one for it.
bool DescriptorsAreScarce();

// Returns kOutOfSpace, with advice, unless `count` more descriptors are available now. For use
// before calls that end the process when they cannot get a descriptor, as some libraries do.
Status CheckDescriptorsLeft(size_t count);

// Returns kOutOfSpace "CALL: TEXT OF error", with advice if the process or the machine has too many
// open files. `error` is an errno.
Status DescriptorError(const char* call, int error);

}  // namespace lamina
