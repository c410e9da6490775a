// Finds the network interface of this machine that has an IP address.
#pragma once

#include <string>

namespace lamina {

// The name of the interface that has `ip_address`, such as "eth0". The address may be written in
// any valid form ("::1", "0:0:0:0:0:0:0:1"). "" if no interface has it or it is no IP address.
std::string InterfaceOf(const std::string& ip_address);

}  // namespace lamina
