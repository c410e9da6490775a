#include "compute_node/remote_attention.h"

#include <algorithm>
#include <utility>

namespace lamina {
namespace {

// KV of prompts, in the layers that run on this node.
Result<std::unique_ptr<PrefillKv>> MakePrefillKv(const RemoteAttentionOptions& options,
                                                 ComputeDevice& device) {
  const SliceRange own = options.own_layers;
  const int num_layers = own.end > 0 ? own.end - own.first : options.num_layers;
  const KvShape shape{std::max(num_layers, 1), options.wire.num_kv_heads, options.wire.head_dim,
                      options.wire.kv_dtype};
  return PrefillKv::Create(device, options.attention, shape, options.layers.From(own.first),
                           options.prefill_cache_tokens);
}

}  // namespace

Result<ConnectingAttention> RemoteAttention::StartConnect(
    const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
    const std::vector<MemoryNodeAddress>& addresses, ComputeDevice& device, Deadline deadline) {
  LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<PrefillKv> prefill, MakePrefillKv(options, device));
  std::unique_ptr<RemoteAttention> attention(
      new RemoteAttention(options, std::move(ladder), std::move(prefill), device));
  LAMINA_RETURN_IF_ERROR(attention->StartPeers(addresses, deadline));
  return ConnectingAttention(std::move(attention));
}

Result<std::unique_ptr<RemoteAttention>> ConnectingAttention::Poll() {
  RemoteSession& session = attention_->session_;
  LAMINA_RETURN_IF_ERROR(session.peers.Connect());
  // How a step reaches a node depends on the link between the devices.
  for (int batch = 0; batch < session.options.wire.num_batches; ++batch)
    attention_->steps_.push_back(
        std::make_unique<RemoteStep>(session, static_cast<uint32_t>(batch)));
  return std::move(attention_);
}

Result<std::unique_ptr<RemoteAttention>> RemoteAttention::Create(
    const RemoteAttentionOptions& options, std::shared_ptr<Ladder> ladder,
    const std::vector<MemoryNodeAddress>& addresses, ComputeDevice& device, Deadline deadline) {
  Ladder* const path = ladder.get();
  LAMINA_ASSIGN_OR_RETURN(ConnectingAttention connecting,
                          StartConnect(options, std::move(ladder), addresses, device, deadline));
  while (true) {
    Result<std::unique_ptr<RemoteAttention>> attention = connecting.Poll();
    if (attention.status().code() != StatusCode::kTryAgain) return attention;
    path->Sleep({}, Deadline(connecting.wake_at()));
  }
}

Status RemoteAttention::StartPeers(const std::vector<MemoryNodeAddress>& addresses,
                                   Deadline deadline) {
  const RemoteAttentionOptions& options = session_.options;
  const DataPathOptions path{{options.epoch, options.self.value, options.session_token},
                             options.payload_checksum,
                             options.polling,
                             deadline};
  for (const MemoryNodeAddress& address : addresses) {
    WireShape wire = options.wire;
    wire.num_kv_heads = address.num_kv_heads;
    wire.num_heads = address.num_kv_heads * options.attention.group();
    Result<std::unique_ptr<DeviceLink>> link = Unimplemented("so they were told");
    if (options.polling != PollingMode::kHost)
      link = session_.device.MakeLink(wire, options.peer_timeout);
    LAMINA_RETURN_IF_ERROR(session_.peers.StartConnect(address, wire, path, std::move(link)));
  }
  return OkStatus();
}

RemoteStep& RemoteAttention::Begin(const AttentionRows& rows) {
  RemoteStep& step = *steps_[rows.batch];
  step.Begin(rows);
  return step;
}

void RemoteAttention::Sleep(std::span<const int> fds, Deadline latest) {
  const TimePoint end =
      std::min({Clock::now() + session_.options.peer_timeout, latest.at(), wake_at()});
  const bool fetching = std::ranges::any_of(
      steps_, [](const std::unique_ptr<RemoteStep>& step) { return step->fetching(); });
  session_.peers.Sleep(fds, Deadline(end), fetching);
}

TimePoint RemoteAttention::wake_at() const {
  TimePoint first = session_.peers.suspended_until();
  for (const std::unique_ptr<RemoteStep>& step : steps_)
    first = std::min(first, step->patience_ends());
  return first;
}

}  // namespace lamina
