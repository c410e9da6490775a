#include "cli/model_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <utility>

#include "base/inbox.h"
#include "base/log.h"
#include "cost/node_device.h"
#include "manager/resolve_config.h"
#include "text/byte_tokenizer.h"
#include "text/pooling.h"

namespace lamina {
namespace {

WakeFd& StopRequested() {
  static WakeFd wake;
  return wake;
}

// Its compute node computes nothing, so the model needs no more than its config.json.
bool IsModelled(const ClusterConfig& config) {
  return std::ranges::any_of(config.nodes, [](const NodeConfig& node) {
    return node.role == NodeRole::kCompute && IsModelledName(node.device);
  });
}

}  // namespace

Result<ModelFiles> ModelFiles::Load(ClusterConfig& config) {
  const std::string& dir = config.model_path;
  ModelFiles files;
  LAMINA_ASSIGN_OR_RETURN(files.model, config.LoadModel());
  LAMINA_RETURN_IF_ERROR(ResolveConfig(config, files.model));
  Result<std::unique_ptr<Tokenizer>> tokenizer = LoadTokenizer(dir);
  if (tokenizer.status().code() == StatusCode::kNotFound && IsModelled(config))
    tokenizer =
        MakeByteTokenizer(files.model.vocab_size, files.model.bos_token, files.model.first_eos());
  LAMINA_ASSIGN_OR_RETURN(files.tokenizer, std::move(tokenizer));
  LAMINA_ASSIGN_OR_RETURN(files.infill, LoadInfillFormat(dir, *files.tokenizer));
  Result<std::unique_ptr<ChatTemplate>> chat = ChatTemplate::Load(dir);
  if (chat.ok()) {
    files.chat_template = std::move(*chat);
  } else {
    files.no_chat_reason = chat.status().message();
    if (chat.status().code() != StatusCode::kNotFound)
      LAMINA_LOG_WARN("chat is off: {}", chat.status().message());
  }
  files.no_vectors_reason = CheckPooling(dir).message();
  files.metrics = std::make_unique<Metrics>(config.served_name);
  return files;
}

Result<std::unique_ptr<HttpServer>> StartHttp(const ClusterConfig& config, const ModelFiles& files,
                                              const HttpOptions& options) {
  ServerOptions server;
  server.host = options.host;
  server.port = static_cast<uint16_t>(options.port);
  server.service.api_key = options.api_key;
  server.service.max_queued_requests = config.max_num_queued_reqs;
  ServedModel model;
  model.name = config.served_name;
  model.root = config.model_path;
  model.tokenizer = files.tokenizer.get();
  model.chat_template = files.chat_template.get();
  if (!files.no_chat_reason.empty()) model.no_chat_reason = files.no_chat_reason;
  model.no_vectors_reason = files.no_vectors_reason;
  model.infill = files.infill;
  model.config = files.model;
  model.max_num_seqs = config.max_num_seqs;
  LAMINA_RETURN_IF_ERROR(options.api.ApplyTo(server, model));
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<HttpServer> http,
                          HttpServer::Create(server, model, *files.metrics));
  http->Start();
  return http;
}

Status StopHttp(HttpServer& server, const EngineStatus& before, Clock::duration drain_timeout) {
  const bool asked = IsStopRequested();
  const Clock::duration grace = asked ? drain_timeout : Clock::duration::zero();
  const size_t failed = server.Stop(grace);
  if (failed > 0) {
    return TimedOut(fmt::format(
        "{} request{} under way did not end well: they failed, or took longer than {:.0f} s "
        "(--drain-timeout)",
        failed, failed == 1 ? "" : "s", std::chrono::duration<double>(grace).count()));
  }
  if (asked && !before.serving)
    return PeerLost("stopped while nothing could be served: " + before.detail);
  return OkStatus();
}

void HandleStopSignals() {
  StopRequested();  // made before a handler can run
  std::signal(SIGTERM, [](int) { StopRequested().Signal(); });
  std::signal(SIGINT, [](int) {
    StopRequested().Signal();
    // A second Ctrl-C does not wait for anybody; the nodes end with this process.
    std::signal(SIGINT, SIG_DFL);
  });
  std::signal(SIGPIPE, SIG_IGN);
}

bool IsStopRequested() { return IsStopRequested(Deadline::After(Clock::duration::zero())); }

bool IsStopRequested(Deadline deadline) {
  pollfd entry{StopRequested().fd(), POLLIN, 0};
  return poll(&entry, 1, deadline.RemainingMs()) > 0;
}

void Say(const std::string& line) { std::cout << line << std::endl; }

}  // namespace lamina
