// What the fabrics are measured against: the benchmark program of the library or hardware that a
// fabric stands for.
//
//   fabric  program                     package    tests
//   shm     ucx_perftest                ucx-utils  ucp_put_lat, ucp_put_bw over UCX's shared memory
//   ucx     ucx_perftest                ucx-utils  the same over what UCX chooses on this host
//   verbs   ib_write_lat, ib_write_bw   perftest   RDMA writes over the first device
//   tcp     none: see socket_reference.h
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "bench/transport/transport_case.h"

namespace lamina {

// One row of that table, for one measure.
struct ReferenceProgram {
  std::string name;     // "ucx_perftest ucp_put_lat, UCX_TLS=...", for people
  std::string program;  // "ucx_perftest"
  std::string package;  // "ucx-utils"
};

// REQUIRES: fabric is shm, ucx or verbs.
ReferenceProgram ReferenceOf(const TransportCase& test);

// Whether the fabric is shm, ucx or verbs.
bool HasReference(std::string_view fabric);

// Runs both of the program's processes against each other through `host` and returns the result in
// the unit of the measure. kNotFound if the program is not installed, naming the package; kInternal
// if it fails or prints something unknown, quoting it; kTimeout if it does not start or does not
// end.
Result<double> RunReference(const TransportCase& test, const std::string& host);

// The result in what `ucx_perftest -f -v -R 50` has printed, in the unit of the measure. kInternal
// quotes the output if there is none.
Result<double> ParseUcxPerftest(std::string_view output, TransportMeasure measure);
// The same for ib_write_lat, and for ib_write_bw with --report_gbits.
Result<double> ParseIbPerftest(std::string_view output, TransportMeasure measure, uint64_t bytes);

}  // namespace lamina
