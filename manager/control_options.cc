#include "manager/control_options.h"

#include <algorithm>

#include "transport/secret_file.h"
#include "transport/tls_context.h"

namespace lamina {

Result<ControlOptions> ControlOptionsOf(const ClusterConfig& config, const std::string& hello) {
  ControlOptions options;
  options.hello = hello;
  // The others beat at that rate too.
  options.peer_timeout = std::max<Clock::duration>(config.peer_timeout, 4 * options.heartbeat);
  LAMINA_ASSIGN_OR_RETURN(options.secret, ReadSecretFile(config.secret_file));
  LAMINA_ASSIGN_OR_RETURN(options.tls, TlsContext::Load(config.tls));
  return options;
}

}  // namespace lamina
