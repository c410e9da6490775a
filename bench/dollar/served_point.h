// What answers the requests of one point: started for it, gone after it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/dollar/sweep.h"

namespace lamina {

// A point's shape behind an OpenAI-compatible server on the loopback. The server and the engine are
// in this process; so is the model in one process, a cluster's nodes are daemons. Thread: owner.
class ServedPoint {
 public:
  // REQUIRES: the shape is no kEndpoint. Errors name the daemon, the file or the limit.
  // kOutOfSpace: the KV memory does not hold the batch, so that a part of it would wait.
  static Result<std::unique_ptr<ServedPoint>> Start(const Sweep& sweep, const SweepPoint& point);
  virtual ~ServedPoint() = default;

  virtual std::string url() const = 0;
  virtual Status Check() = 0;  // as LocalCluster::Check

  // What runs, as a shell would take it; ports are any free ones.
  virtual std::vector<std::string> commands() const = 0;

  // Fabrics between the nodes: "shm"; "" within one process.
  virtual std::string data_path() = 0;

  // In flight at a time, as far as it is fixed; 0: the pipeline is auto.
  virtual int num_batches() const = 0;
  virtual int tensor_parallel_size() const = 0;
};

}  // namespace lamina
