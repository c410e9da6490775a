// The network interfaces of this machine.
#pragma once

#include <string>

namespace lamina {

// The name of the interface that has this IP address ("eth0"), however it is written; "" if none
// has or it is no IP address.
std::string InterfaceOf(const std::string& ip_address);

}  // namespace lamina
