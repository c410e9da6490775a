// What our fabrics are measured against: the benchmark program of the library or hardware that the
// fabric stands for.
//
//   fabric   program         package     tests
//   shm      ucx_perftest    ucx-utils   ucp_put_lat, ucp_put_bw over UCX's shared memory
//   transports ucx      ucx_perftest    ucx-utils   the same over what UCX chooses on this host
//   verbs    ib_write_lat/bw perftest    RDMA writes over the first device
//   tcp      none: bench/transport/socket_reference.h
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "bench/transport/transport_case.h"

namespace lamina {

struct ReferenceProgram {
  std::string name;     // "ucx_perftest ucp_put_lat, UCX_TLS=..."
  std::string program;  // "ucx_perftest"
  std::string package;  // "ucx-utils"
};

// REQUIRES: fabric is shm, ucx or verbs.
ReferenceProgram ReferenceOf(const TransportCase& test);

bool HasReference(std::string_view fabric);  // is shm, ucx or verbs

// Runs both of the program's processes against each other through `host`. In the unit of the
// measure. kNotFound if the program is not installed: names the package. kInternal if it fails or
// says something unknown, with what it said.
Result<double> RunReference(const TransportCase& test, const std::string& host);

// What the programs print, in the unit of the measure. kInternal with a quote if the result is not
// in there. ucx_perftest -f -v -R 50.
Result<double> ParseUcxPerftest(std::string_view output, TransportMeasure measure);
// ib_write_* --report_gbits.
Result<double> ParseIbPerftest(std::string_view output, TransportMeasure measure, uint64_t bytes);

}  // namespace lamina
