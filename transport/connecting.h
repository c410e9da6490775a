// Connections that are being made by a fabric around another one.
#pragma once

#include <functional>
#include <memory>

#include "transport/transport.h"

namespace lamina {

// Wraps the endpoint of the inner connection, or changes the error that it ended with.
using TakeOutcome =
    std::function<Result<std::unique_ptr<Endpoint>>(Result<std::unique_ptr<Endpoint>> outcome)>;

// Goes on as `inner` does, and ends with what `take` makes of its outcome. Calls `take` once.
std::unique_ptr<Connecting> WithOutcome(std::unique_ptr<Connecting> inner, TakeOutcome take);

}  // namespace lamina
