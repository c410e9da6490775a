// What every node of a cluster is told when it starts, whatever it is for.
#pragma once

#include <string>

#include "base/clock.h"
#include "base/departure.h"
#include "base/tls_files.h"
#include "cost/node_device.h"
#include "transport/control_server.h"
#include "transport/ladder.h"

namespace lamina {

// Value type.
struct NodeOptions {
  // Its name in the cluster's YAML.
  std::string name;
  // HOST:PORT of the control channel; port 0 takes any free one. The data path listens on the same
  // host.
  std::string listen = "127.0.0.1:0";
  // The cluster's secret (transport/secret_file.h); "" for none. A node that does not listen on the
  // loopback interface needs a secret or TLS.
  std::string secret_file;
  // The files for TLS. Empty: no TLS.
  TlsFiles tls;
  // The threads of the kernels. 0: one per core.
  int num_threads = 0;
  // Whether each thread stays on one of the cores that the creating thread may run on.
  bool pin_threads = false;
  // What the node computes on, by default the CPU.
  NodeDevice device;
  // Open the control channel and the fabrics of the data path; tests replace them.
  OpenControl open_control = OpenControlServer;
  OpenLadder open_ladder = Ladder::Open;
  // How long a node that was asked to leave goes on with a manager's session.
  Clock::duration drain_timeout = kNodeDrainTimeout;
};

}  // namespace lamina
