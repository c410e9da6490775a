// What answers the requests of one point: it is started for the point and ends after it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/dollar/sweep.h"

namespace lamina {

// A point's shape behind an OpenAI-compatible server on the loopback interface. The server and the
// engine are in this process; a model in one process is too, while the nodes of a cluster are
// daemons. All of it ends with the object. Thread: owner.
class ServedPoint {
 public:
  // Starts everything and returns when it serves. Errors name the daemon, the file or the limit;
  // kOutOfSpace if the KV memory does not hold the whole batch, a part of which would have to wait.
  // REQUIRES: the shape is no kEndpoint.
  static Result<std::unique_ptr<ServedPoint>> Start(const Sweep& sweep, const SweepPoint& point);
  virtual ~ServedPoint() = default;

  // "http://127.0.0.1:PORT".
  virtual std::string url() const = 0;
  // An error if a daemon has ended, which says how. OK in one process.
  virtual Status Check() = 0;

  // Command lines of the daemons, as a shell would take them; their ports are any free ones.
  virtual std::vector<std::string> commands() const = 0;

  // The fabrics between the nodes, "shm" for example; "" within one process.
  virtual std::string data_path() = 0;

  // Batches in flight, as far as that is fixed; 0 with the pipeline "auto".
  virtual int num_batches() const = 0;
  virtual int tensor_parallel_size() const = 0;
};

}  // namespace lamina
