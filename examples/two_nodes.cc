// The smallest use of lamina's parts: attention of one head, divided between two nodes. This thread
// plays the compute node, a second one the memory node, which stores every other token's k and v.
// In each step q, k and v of the newest token cross shared memory, each node attends to its tokens,
// and the merged output is compared with attention to all of them.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "memory_node/attention_service.h"
#include "memory_node/cpu_kv_device.h"
#include "transport/transport.h"
#include "wire/lanes.h"

using namespace lamina;

constexpr int kDim = 64, kTokens = 64;
constexpr AttentionShape kShape{1, 1, kDim, /*scale=*/0.125f};
constexpr WireShape kWire{1, 1, kDim, DType::kF32, /*max_rows=*/1};

// Waits for the peer's next message; false: the peer is gone.
bool Await(Fabric& fabric, Lanes& peer, MessageKind kind) {
  while (peer.Poll([](const Notification&) { return true; }).ok()) {
    if (peer.arrived(kind, 0)) return true;
    Sleep(fabric, {}, Deadline::After(std::chrono::seconds(1)));
  }
  return false;
}

void RunMemoryNode(Fabric& fabric, Listener& listener) {
  WorkerTeam team(1);
  AttentionService service(
      kWire, {kShape.scale}, /*epoch=*/1,
      std::make_unique<CpuKvDevice>(*KvStore::Create({1, 1, kDim, DType::kF32}, kTokens), team));
  auto endpoint = listener.Accept({kWire.memory_window_bytes(), ""});
  for (; !endpoint.ok(); endpoint = listener.Accept({kWire.memory_window_bytes(), ""}))
    Sleep(fabric, {}, Deadline::After(std::chrono::seconds(1)));
  const auto peer =
      *Lanes::Create(fabric, *std::move(endpoint), ReplyLanes(kWire), DecodeLanes(kWire), {});
  for (uint32_t token = 0; token < kTokens; ++token) {
    MemoryOrder order;  // the manager's scheduler sends it: what the step is about
    order.epoch = 1;
    order.step = StepId{token};
    DecodeRow& row = order.decode.emplace_back();
    row.num_stored = (token + 1) / 2;
    if (token % 2 == 0) row.slot = token / 2;
    service.Apply(order);
    if (!Await(fabric, *peer, MessageKind::kDecode)) return;
    const auto reply =
        service.Decode(*peer->Take(MessageKind::kDecode, 0), peer->payload(MessageKind::kReply, 0));
    (void)peer->Post(MessageKind::kReply, 0, reply.header, reply.payload_bytes);
  }
  (void)Await(fabric, *peer, MessageKind::kDecode);  // until it has read the last reply
}

int main() {
  const auto here = *OpenFabric("shm"), there = *OpenFabric("shm");
  const auto listener = *there->Listen("two-nodes-" + std::to_string(std::random_device()()));
  std::thread memory_node([&] { RunMemoryNode(*there, *listener); });
  auto endpoint = *here->Connect(listener->address(), {kWire.compute_window_bytes(), ""},
                                 Deadline::After(std::chrono::seconds(10)));
  auto peer = *Lanes::Create(*here, std::move(endpoint), DecodeLanes(kWire), ReplyLanes(kWire), {});
  WorkerTeam team(1);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> rows;           // q, k and v of token 0, then of token 1, ...
  std::vector<TokenSlot> ours, all;  // those that this node attends to, and those of the check
  float largest_difference = 0;
  for (uint32_t token = 0; token < kTokens; ++token) {
    for (int i = 0; i < 3 * kDim; ++i) rows.push_back(normal(random));
    const float* q = &rows[token * 3 * kDim];
    const auto attend = [&](const std::vector<TokenSlot>& tokens, float* out, float* lse) {
      const KvView view{&rows[kDim], &rows[2 * kDim], 0, 3 * kDim, DType::kF32};
      const AttentionRow row{q, tokens.data(), std::ssize(tokens), out, lse};
      Attention(kShape, view, {&row, 1}, team);
    };
    const size_t bytes = (token % 2 == 0 ? 3 : 1) * kDim * sizeof(float);  // with k and v, or not
    std::memcpy(peer->payload(MessageKind::kDecode, 0).data(), q, bytes);
    (void)peer->Post(MessageKind::kDecode, 0, {.step = token, .num_rows = 1, .flags = kWantsLse},
                     bytes);

    all.push_back(token);
    if (token % 2 != 0) ours.push_back(token);
    std::array<float, kDim> out, expected;
    float lse;
    attend(ours, out.data(), &lse);  // while the memory node attends to its tokens
    if (!Await(*here, *peer, MessageKind::kReply)) std::exit(1);  // the memory node is gone
    const auto reply = *peer->Take(MessageKind::kReply, 0);
    const auto* theirs = reinterpret_cast<const float*>(reply.payload.data());  // output, then lse
    MergePartial(out, lse, {theirs, kDim}, theirs[kDim]);
    attend(all, expected.data(), nullptr);
    for (size_t i = 0; i < kDim; ++i)
      largest_difference = std::max(largest_difference, std::abs(out[i] - expected[i]));
  }
  std::printf("%d tokens on two nodes: the output is at most %g from that on one\n", kTokens,
              static_cast<double>(largest_difference));
  peer.reset();
  memory_node.join();
  return largest_difference < 1e-5f ? 0 : 1;
}
