#include "bench/kernels/cuda_round_trip.h"

#include "kernels/cuda/device.h"

#if LAMINA_HAS_CUDA
#include <poll.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/inbox.h"
#include "bench/kernels/cuda_samples.h"
#include "bench/kernels/random_values.h"
#include "compute_node/make_compute_device.h"
#include "compute_node/remote_attention.h"
#include "memory_node/memory_node.h"
#include "plan/statistics.h"
#include "transport/control_channel.h"
#include "wire/codec.h"

namespace lamina {
namespace {

using std::chrono::seconds;

constexpr SequenceId kSequence{1};
constexpr NodeId kMemory{1}, kCompute{2};
// Session tokens have 16 bytes.
const std::string kToken = "sixteen letters.";

// Both nodes of one kind of polling, and the manager between them.
class RoundTrip {
 public:
  static Result<std::unique_ptr<RoundTrip>> Create(int device, const RoundTripCase& sizes,
                                                   PollingMode polling) {
    std::unique_ptr<RoundTrip> trip(new RoundTrip(sizes));
    const KvShape kv{sizes.num_layers, sizes.num_kv_heads, sizes.head_dim, DType::kBF16};
    MemoryNodeOptions node;
    node.device = CudaGpu{device};
    node.memory_bytes = kv.bytes_per_token() * (sizes.context + sizes.num_steps + 1);
    LAMINA_ASSIGN_OR_RETURN(trip->node_, MemoryNode::Create(node));
    trip->thread_ = std::thread([node = trip->node_.get()] { node->Run(); });
    LAMINA_ASSIGN_OR_RETURN(trip->manager_,
                            ConnectControl(trip->node_->address(), {.hello = "benchmark"},
                                           Deadline::After(seconds(10))));
    trip->manager_->Start({.on_frame = [inbox = &trip->answers_](
                                           ControlFrame frame) { inbox->Push(std::move(frame)); },
                           .on_lost = {}});
    LAMINA_ASSIGN_OR_RETURN(const std::string offers, trip->Configure(polling));
    LAMINA_RETURN_IF_ERROR(trip->Connect(device, polling, offers));
    LAMINA_RETURN_IF_ERROR(trip->FillContext());
    return trip;
  }

  ~RoundTrip() {
    attention_.reset();
    if (!thread_.joinable()) return;
    node_->Stop();
    thread_.join();
  }

  std::string through() const { return attention_->paths()[0].through; }

  // One step; returns its time per layer, in microseconds.
  Result<double> Step() {
    MemoryOrder order;
    DecodeRow& row = order.decode.emplace_back();
    row.sequence = kSequence;
    row.num_stored = length_;
    row.position = length_;
    row.slot = static_cast<uint32_t>(length_);
    LAMINA_RETURN_IF_ERROR(Order(order));
    const std::vector<AttentionWork> work = {
        {.sequence = kSequence, .node = kMemory, .position = length_++}};
    LAMINA_RETURN_IF_ERROR(AwaitOrder());
    AttentionStep& step = attention_->Begin({0, step_, work});
    const TimePoint start = Clock::now();
    for (int layer = 0; layer < sizes_.num_layers; ++layer) {
      step.Start({layer, q_.as<float>(), k_.as<float>(), v_.as<float>(), out_.as<float>()});
      while (!step.Finish()) attention_->Poll();
    }
    const double us =
        std::chrono::duration<double, std::micro>(Clock::now() - start).count() / sizes_.num_layers;
    for (const auto& [sequence, status] : step.failures()) return status;
    step.End();
    return us;
  }

 private:
  explicit RoundTrip(const RoundTripCase& sizes) : sizes_(sizes) {}
  int num_heads() const { return sizes_.group * sizes_.num_kv_heads; }

  Result<std::string> Configure(PollingMode polling) {
    ConfigureMemory request;
    request.epoch = 1;
    request.node = kMemory;
    request.fabrics = {TransportKind::kShm};
    request.session_token = kToken;
    request.payload_checksum = Switch::kAuto;
    request.polling = polling;
    AttentionSpec& spec = request.attention;
    spec.num_layers = sizes_.num_layers;
    spec.num_heads = num_heads();
    spec.num_kv_heads = sizes_.num_kv_heads;
    spec.head_dim = sizes_.head_dim;
    spec.scale = 1 / std::sqrt(static_cast<float>(sizes_.head_dim));
    spec.kv_dtype = DType::kBF16;
    spec.wire_dtype = DType::kBF16;
    request.limits.max_num_seqs = 1;
    LAMINA_ASSIGN_OR_RETURN(const Configured answer,
                            Ask<Configured>(MessageType::kConfigureMemory, Encode(request)));
    LAMINA_RETURN_IF_ERROR(answer.status);
    return answer.offers;
  }

  template <typename Answer>
  Result<Answer> Ask(MessageType type, std::string request) {
    LAMINA_RETURN_IF_ERROR(manager_->Send(FrameType(type), std::move(request)));
    pollfd entry{answers_.fd(), POLLIN, 0};
    poll(&entry, 1, 60'000);
    const std::optional<ControlFrame> frame = answers_.TryPop();
    if (!frame) return TimedOut("the memory node did not answer");
    return Decode<Answer>(frame->payload);
  }

  // Waits until the node has taken up the order: an answer to a question that was sent after it
  // says so.
  Status AwaitOrder() {
    return Ask<MemoryStats>(MessageType::kStatsRequest, Encode(StatsRequest{.epoch = 1})).status();
  }

  Status Connect(int device, PollingMode polling, const std::string& offers) {
    LAMINA_ASSIGN_OR_RETURN(compute_, MakeComputeDevice(CudaGpu{device}, team_));
    RemoteAttentionOptions options;
    options.epoch = 1;
    options.session_token = kToken;
    options.polling = polling;
    options.self = kCompute;
    options.attention = {num_heads(), sizes_.num_kv_heads, sizes_.head_dim, 1, 0};
    options.wire = {num_heads(), sizes_.num_kv_heads, sizes_.head_dim, DType::kBF16, 1,
                    1,           DType::kBF16};
    options.num_layers = sizes_.num_layers;
    options.prefill_cache_tokens = 1;
    LAMINA_ASSIGN_OR_RETURN(std::shared_ptr<Ladder> ladder,
                            Ladder::Open(std::vector<std::string>{"shm"}));
    const std::vector<MemoryNodeAddress> peers = {
        {kMemory, "m0", offers, kMemory, 0, sizes_.num_kv_heads}};
    LAMINA_ASSIGN_OR_RETURN(attention_,
                            RemoteAttention::Create(options, std::move(ladder), peers, *compute_,
                                                    Deadline::After(seconds(10))));
    LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<cuda::Stream> stream, cuda::Stream::Create());
    const auto q_elements = static_cast<size_t>(num_heads() * sizes_.head_dim),
               kv_elements = static_cast<size_t>(sizes_.num_kv_heads * sizes_.head_dim);
    LAMINA_ASSIGN_OR_RETURN(q_, Uploaded(RandomValues(q_elements, 1), *stream));
    LAMINA_ASSIGN_OR_RETURN(k_, Uploaded(RandomValues(kv_elements, 2), *stream));
    LAMINA_ASSIGN_OR_RETURN(v_, Uploaded(RandomValues(kv_elements, 3), *stream));
    LAMINA_ASSIGN_OR_RETURN(out_, cuda::DeviceBuffer::Create(q_elements * sizeof(float)));
    return stream->Synchronize();
  }

  // Stores `context` tokens with made-up K and V.
  Status FillContext() {
    MemoryOrder order;
    order.dummy_prefill = true;
    PrefillChunk& chunk = order.prefill.emplace_back();
    chunk.sequence = kSequence;
    for (; length_ < sizes_.context; ++length_)
      chunk.slots.push_back(static_cast<uint32_t>(length_));
    return Order(order);
  }

  Status Order(MemoryOrder& order) {
    order.epoch = 1;
    ++step_.value;
    order.step = step_;
    return manager_->Send(FrameType(MessageType::kMemoryOrder), Encode(order));
  }

  const RoundTripCase sizes_;
  WorkerTeam team_{1};
  std::unique_ptr<MemoryNode> node_;
  std::thread thread_;
  Inbox<ControlFrame> answers_;
  std::unique_ptr<ControlConnection> manager_;
  std::unique_ptr<ComputeDevice> compute_;
  std::unique_ptr<RemoteAttention> attention_;  // borrows compute_
  cuda::DeviceBuffer q_, k_, v_, out_;
  int64_t length_ = 0;
  StepId step_{0};
};

constexpr int kWarmUp = 4;  // steps

}  // namespace

Result<Measurement> MeasureRoundTrip(int device, const RoundTripCase& sizes) {
  RoundTripCase with_warm_up = sizes;
  with_warm_up.num_steps += kWarmUp;
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<RoundTrip> devices,
                          RoundTrip::Create(device, with_warm_up, PollingMode::kDevice));
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<RoundTrip> hosts,
                          RoundTrip::Create(device, with_warm_up, PollingMode::kHost));
  std::vector<double> device_us, host_us;
  for (int step = 0; step < with_warm_up.num_steps; ++step) {
    LAMINA_ASSIGN_OR_RETURN(const double by_devices, devices->Step());
    LAMINA_ASSIGN_OR_RETURN(const double by_hosts, hosts->Step());
    if (step < kWarmUp) continue;
    device_us.push_back(by_devices);
    host_us.push_back(by_hosts);
  }
  Measurement m;
  m.name = "attention_round_trip";
  m.sizes = {{"head_dim", sizes.head_dim},
             {"group", sizes.group},
             {"context", sizes.context},
             {"rows", 1}};
  m.value = Percentile(device_us, 0.5);
  m.unit = "us";
  m.p99 = Percentile(device_us, 0.99);
  m.p99_of = "us, a layer's share of a step";
  if (devices->through() == "devices poll") {
    m.reference = "hosts poll";
    m.reference_value = Percentile(host_us, 0.5);
    m.ratio = m.reference_value / m.value;
    m.details = {{"reference_p99", Percentile(host_us, 0.99)}};
  } else {
    m.note = devices->through();
  }
  return m;
}

}  // namespace lamina
#endif
