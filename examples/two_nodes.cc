// The smallest use of lamina's parts: attention of one head, divided between a compute node and a
// memory node, which stores every other token's k and v. In each step q, k and v of the newest
// token cross shared memory, each node attends to its tokens, and the merged output is compared
// with attention to all of them. Both nodes take turns on one thread, as only Connect blocks.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <future>
#include <random>

#include "memory_node/attention_service.h"
#include "memory_node/cpu_kv_device.h"
#include "transport/transport.h"
#include "wire/lanes.h"

using namespace lamina;
using enum MessageKind;

constexpr int kDim = 64, kTokens = 64;
constexpr AttentionShape kShape{1, 1, kDim, /*scale=*/0.125f};
constexpr WireShape kWire{1, 1, kDim, DType::kF32, /*max_rows=*/1};

ReceivedMessage Receive(Lanes& peer, MessageKind kind) {
  while (!peer.arrived(kind, 0)) (void)*peer.Poll([](const Notification&) { return true; });
  return *peer.Take(kind, 0);
}

int main() {
  const auto compute = *OpenFabric("shm"), memory = *OpenFabric("shm");
  const auto listener = *memory->Listen("two-nodes-" + std::to_string(std::random_device()()));
  auto connecting = std::async(std::launch::async, [&] {
    return *compute->Connect(listener->address(), {kWire.compute_window_bytes(), ""},
                             Deadline::After(std::chrono::seconds(10)));
  });
  auto accepted = listener->Accept({kWire.memory_window_bytes(), ""});
  while (!accepted.ok()) accepted = listener->Accept({kWire.memory_window_bytes(), ""});
  const auto to_memory =
      *Lanes::Create(*compute, connecting.get(), DecodeLanes(kWire), ReplyLanes(kWire), {});
  const auto to_compute =
      *Lanes::Create(*memory, *std::move(accepted), ReplyLanes(kWire), DecodeLanes(kWire), {});
  WorkerTeam team(1);
  AttentionService service(
      kWire, {kShape.scale}, /*epoch=*/0,
      {std::make_unique<CpuKvDevice>(*KvStore::Create({1, 1, kDim, DType::kF32}, kTokens), team)});

  std::vector<float> rows(kTokens * 3 * kDim);  // q, k and v of token 0, then of token 1, ...
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = std::sin(static_cast<float>(i * i));
  const KvView view{&rows[kDim], &rows[2 * kDim], 0, 3 * kDim, DType::kF32};
  std::vector<TokenSlot> odd, all;  // the compute node's tokens, and those of the check
  float lse, largest_difference = 0;
  for (uint32_t token = 0; token < kTokens; ++token) {
    const float* q = &rows[token * 3 * kDim];
    const size_t bytes = (token % 2 == 0 ? 3 : 1) * kDim * sizeof(float);  // with k and v, or not
    std::memcpy(to_memory->payload(kDecode, 0).data(), q, bytes);
    (void)to_memory->Post(kDecode, 0, {.step = token, .num_rows = 1, .flags = kWantsLse}, bytes);

    MemoryOrder order;  // from the manager's scheduler: what the step is about
    order.step = StepId{token};
    order.decode.emplace_back().num_stored = (token + 1) / 2;
    if (token % 2 == 0) order.decode[0].slot = token / 2;
    service.Apply(order);
    const auto part = service.Decode(Receive(*to_compute, kDecode), to_compute->payload(kReply, 0));
    (void)to_compute->Post(kReply, 0, part.header, part.payload_bytes);
    all.push_back(token);
    if (token % 2 != 0) odd.push_back(token);
    std::array<float, kDim> out, expected;
    const AttentionRow both[] = {{q, odd.data(), std::ssize(odd), out.data(), &lse},
                                 {q, all.data(), std::ssize(all), expected.data(), nullptr}};
    Attention(kShape, view, both, team);
    const ReceivedMessage reply = Receive(*to_memory, kReply);
    const auto* theirs = reinterpret_cast<const float*>(reply.payload.data());  // output, then lse
    MergePartial(out, lse, {theirs, kDim}, theirs[kDim]);
    for (size_t i = 0; i < kDim; ++i)
      largest_difference = std::max(largest_difference, std::abs(out[i] - expected[i]));
  }
  std::printf("%d tokens on two nodes: the output is at most %g from that on one\n", kTokens,
              static_cast<double>(largest_difference));
  return largest_difference < 1e-5f ? 0 : 1;
}
