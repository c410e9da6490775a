// How many file descriptors this process may have, and which of them connections of strangers may
// not take.
#pragma once

#include <cstddef>

#include "base/status.h"

namespace lamina {

// Raises the limit on open files to what the system allows this process: the usual soft limit of
// 1,024 is too low for a server. At a program's start; programs that it starts inherit the limit.
void RaiseDescriptorLimit();

// The limit as it is now.
size_t DescriptorLimit();

// A quarter of the descriptors belongs to the program itself: to its own connections, logs and
// events. True when no more than these are left: whoever accepts a connection then closes another
// for it.
bool DescriptorsAreScarce();

// kOutOfSpace, saying what to do, unless `count` more descriptors can be had now. For what ends the
// process if it cannot have them, as libraries may.
Status CheckDescriptorsLeft(size_t count);

// kOutOfSpace "CALL: Too many open files", with what to do about it. `error` is an errno.
Status DescriptorError(const char* call, int error);

}  // namespace lamina
