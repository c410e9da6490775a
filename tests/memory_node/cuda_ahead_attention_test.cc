// Both ends of device windows: a compute node's GPU and a memory node's, in one process, against
// the CPU's attention. Without a GPU these tests run in builds whose kernels are emulated
// (docs/cuda.md).
#if LAMINA_HAS_CUDA
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include "compute_node/compute_device.h"
#include "compute_node/make_compute_device.h"
#include "kernels/cuda/device.h"
#include "kernels/kv_rows.h"
#include "memory_node/kv_device.h"
#include "memory_node/make_kv_device.h"
#include "tests/kernels/cuda_cases.h"
#include "tests/support/gpu_nic.h"

namespace lamina {
namespace cuda_ahead_attention_test {

using std::chrono::seconds;

constexpr WireShape kWire{.num_heads = 4,
                          .num_kv_heads = 2,
                          .head_dim = 16,
                          .kv_dtype = DType::kF32,
                          .max_rows = 4,
                          .num_batches = 2,
                          .wire_dtype = DType::kF32};
constexpr AttentionShape kShape{4, 2, 16, 0.25f, 0};
constexpr int kLayers = 3;
constexpr size_t kQ = 64, kKv = 32;  // floats per row
constexpr int64_t kCapacity = 200;

// With its parameter, messages go by posts, as to another host.
MemoryNodeOptions OnGpu() {
  MemoryNodeOptions options;
  options.device = CudaGpu{0};
  return options;
}

class CudaAheadAttentionTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const Result<int> count = cuda::DeviceCount(); !count.ok()) GTEST_SKIP() << count.status();
    compute_ = *MakeComputeDevice(CudaGpu{0}, team_);
    stream_ = *cuda::Stream::Create();
    MakeMemory();
  }

  // K and V of wire_.kv_dtype.
  void MakeMemory() {
    Close();
    const KvShape kv{kLayers, wire_.num_kv_heads, wire_.head_dim, wire_.kv_dtype};
    memory_ = *MakeKvDevice(OnGpu(), kv, kCapacity, team_);
    reference_ = *MakeKvDevice(MemoryNodeOptions{}, kv, kCapacity, team_);
    Open(seconds(20));
  }

  void Open(Clock::duration limit) {
    Close();
    ahead_of_replies_ = !GetParam();
    Result<std::unique_ptr<DeviceLink>> link = compute_->MakeLink(wire_, limit);
    Result<std::unique_ptr<AheadAttention>> ahead = memory_->MakeAheadAttention(kShape, wire_);
    if (link.status().code() == StatusCode::kUnimplemented) GTEST_SKIP() << link.status();
    ASSERT_TRUE(link.ok() && ahead.ok()) << link.status() << ahead.status();
    link_ = std::move(*link);
    ahead_ = std::move(*ahead);
    DeviceWindow of_link = link_->window(), of_ahead = ahead_->window();
    if (GetParam()) {
      const std::unique_ptr<Listener> listener = *nic_->Listen("ahead");
      std::thread connecting([&] {
        compute_end_ = *other_nic_->Connect("ahead", {4096, "compute", nullptr, of_link},
                                            Deadline::After(seconds(20)));
      });
      while (memory_end_ == nullptr) {
        if (auto accepted = listener->Accept({4096, "memory", nullptr, of_ahead}); accepted.ok())
          memory_end_ = std::move(*accepted);
      }
      connecting.join();
      of_link = memory_end_->peer_device_window();
      of_ahead = compute_end_->peer_device_window();
      ASSERT_TRUE(compute_end_->posts_to_device() && memory_end_->posts_to_device());
    }
    ASSERT_TRUE(link_->Join(of_ahead, /*in_turns=*/true).ok());
    ASSERT_TRUE(ahead_->Join(of_link).ok());
    ASSERT_EQ(link_->by_posts(), GetParam());
  }

  void Close() {
    compute_end_.reset();
    memory_end_.reset();
    link_.reset();
    ahead_.reset();
  }

  // What the hosts do whenever they poll.
  void CarryOn() {
    if (compute_end_ != nullptr) {
      EXPECT_TRUE(link_->Carry(*compute_end_).ok());
    }
    if (memory_end_ != nullptr) {
      EXPECT_TRUE(ahead_->Carry(*memory_end_).ok());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  std::vector<float> Random(size_t n) {
    std::vector<float> values(n);
    for (float& value : values) value = normal_(random_);
    return values;
  }

  cuda::DeviceBuffer OnDevice(const std::vector<float>& values) {
    cuda::DeviceBuffer buffer = *cuda::DeviceBuffer::Create(values.size() * sizeof(float));
    cuda::CopyToDevice(buffer.data(), values.data(), buffer.size_bytes(), *stream_);
    EXPECT_TRUE(stream_->Synchronize().ok());
    return buffer;
  }

  DeviceLane& Lane(int batch) { return link_->lane(static_cast<uint32_t>(batch)); }

  void AwaitFetched(int batch) {
    const Deadline deadline = Deadline::After(seconds(60));
    while (!Lane(batch).fetched() && !deadline.Passed()) CarryOn();
    ASSERT_TRUE(Lane(batch).fetched());
  }

  // What one batch asks for in a step: rows of sequences, each with a new token.
  struct Step {
    uint64_t id = 0;
    int batch = 0;
    std::vector<uint64_t> sequences;
    std::vector<std::vector<float>> q, k, v;  // by layer
    std::vector<cuda::DeviceBuffer> device_q, device_k, device_v, out;
    std::vector<int> rows;
  };
  Step Begin(int batch, const std::vector<uint64_t>& sequences) {
    Step step{
        ++step_, batch, sequences, {}, {}, {}, {}, {}, {}, {}, std::vector<int>(sequences.size())};
    std::iota(step.rows.begin(), step.rows.end(), 0);
    for (int layer = 0; layer < kLayers; ++layer) {
      step.q.push_back(Random(sequences.size() * kQ));
      step.k.push_back(Random(sequences.size() * kKv));
      step.v.push_back(Random(sequences.size() * kKv));
      step.device_q.push_back(OnDevice(step.q.back()));
      step.device_k.push_back(OnDevice(step.k.back()));
      step.device_v.push_back(OnDevice(step.v.back()));
      step.out.push_back(OnDevice(std::vector<float>(sequences.size() * kQ, NAN)));
    }
    AheadStep ahead;
    ahead.id = StepId{step_};
    ahead.batch = batch;
    ahead.tables.resize(1);
    ahead.kind_of_layer.assign(kLayers, 0);
    for (const uint64_t sequence : sequences) {
      const auto slot = static_cast<TokenSlot>(next_slot_++ * 7 % kCapacity);
      const int64_t length = lengths_[sequence]++;
      EXPECT_TRUE(
          memory_->cache().Append(SequenceId{sequence}, length, {&slot, 1}, StepId{step_}).ok());
      EXPECT_TRUE(
          reference_->cache().Append(SequenceId{sequence}, length, {&slot, 1}, StepId{step_}).ok());
      ahead.stored.push_back(slot);
      ahead.tables[0].push_back(*ahead_->Claim(SequenceId{sequence}, length + 1, StepId{step_}));
    }
    ahead_->Attend(ahead);
    return step;
  }
  void Ask(Step& step, int layer) {
    Send(step, layer);
    Take(step, layer);
  }
  void Send(Step& step, int layer) {
    const auto i = static_cast<size_t>(layer);
    const RowParts q{step.rows, kQ, 0, kQ}, kv{step.rows, kKv, 0, kKv};
    const std::array<PackedParts, 3> message = {
        PackedParts{step.device_q[i].as<float>(), q, wire_.wire_dtype},
        PackedParts{step.device_k[i].as<float>(), kv, wire_.kv_dtype, wire_.head_dim},
        PackedParts{step.device_v[i].as<float>(), kv, wire_.kv_dtype, wire_.head_dim}};
    Lane(step.batch)
        .Post(AboutMessage(step.id, step.sequences.size(), step.sequences.size()), message);
  }
  void Take(Step& step, int layer) {
    const auto i = static_cast<size_t>(layer);
    while (Lane(step.batch).carries()) CarryOn();
    Lane(step.batch).Await(ahead_of_replies_);
    if (!ahead_of_replies_ || layer == kLayers - 1) Lane(step.batch).Fetch(0);
    if (!ahead_of_replies_) AwaitFetched(step.batch);
    Lane(step.batch).Unpack(0, wire_.wire_dtype, {step.rows, kQ, 0, kQ}, step.out[i].as<float>());
  }
  void Check(const Step& step) {
    AwaitFetched(step.batch);
    ASSERT_TRUE(Lane(step.batch).outcome().ok()) << Lane(step.batch).outcome();
    for (int layer = 0; layer < kLayers; ++layer) {
      const auto i = static_cast<size_t>(layer);
      std::vector<float> expected(step.sequences.size() * kQ), got(expected.size());
      std::vector<KvQuery> queries;
      for (size_t row = 0; row < step.sequences.size(); ++row) {
        const SequenceId sequence{step.sequences[row]};
        const int64_t length = lengths_[sequence.value];
        const std::vector<std::byte> k = AsKv(step.k[i].data() + row * kKv),
                                     v = AsKv(step.v[i].data() + row * kKv);
        ASSERT_TRUE(reference_->cache()
                        .WriteRaw(layer, sequence, length - 1, k.data(), v.data(), StepId{step_})
                        .ok());
        queries.push_back({reinterpret_cast<const std::byte*>(step.q[i].data() + row * kQ),
                           *reference_->cache().Readable(layer, sequence, length),
                           reinterpret_cast<std::byte*>(expected.data() + row * kQ), nullptr});
      }
      reference_->Attend(kShape, layer, DType::kF32, queries);
      compute_->Pack({{PackedParts{step.out[i].as<float>(), {step.rows, kQ, 0, kQ}}}},
                     reinterpret_cast<std::byte*>(got.data()));
      for (size_t j = 0; j < got.size(); ++j)
        ASSERT_NEAR(got[j], expected[j], 2e-5) << "layer " << layer << " element " << j;
    }
  }

  // Until its kernels have seen it: a flag that comes before that is taken.
  void GiveUpAhead() {
    ahead_->GiveUp();
    const Deadline deadline = Deadline::After(seconds(20));
    while (!ahead_->gave_up() && !deadline.Passed()) std::this_thread::yield();
    ASSERT_TRUE(ahead_->gave_up());
  }

  std::vector<std::byte> AsKv(const float* row) const {
    std::vector<std::byte> bytes(wire_.kv_row_bytes());
    PackKvRow(row, wire_.num_kv_heads, wire_.head_dim, wire_.kv_dtype, bytes.data());
    return bytes;
  }

  const cuda::RunningStreams running_;
  WireShape wire_ = kWire;
  WorkerTeam team_{1};
  std::unique_ptr<KvDevice> memory_, reference_;
  std::unique_ptr<ComputeDevice> compute_;
  std::unique_ptr<cuda::Stream> stream_;
  std::unique_ptr<DeviceLink> link_;
  std::unique_ptr<AheadAttention> ahead_;
  const std::unique_ptr<Fabric> nic_ = ::lamina::testing::OpenGpuNicFabric(),
                                other_nic_ = ::lamina::testing::OpenGpuNicFabric();
  std::unique_ptr<Endpoint> compute_end_, memory_end_;  // by posts; they go before the windows
  std::mt19937 random_{1};
  std::normal_distribution<float> normal_;
  uint64_t step_ = 0, next_slot_ = 1;
  std::map<uint64_t, int64_t> lengths_;
  bool ahead_of_replies_ = true;
};

TEST_P(CudaAheadAttentionTest, AllLayersOfTwoBatchesAreAskedForBeforeAnyIsAnswered) {
  if (GetParam()) GTEST_SKIP() << "this host sees each reply where it posts";
  for (int round = 0; round < 4; ++round) {
    Step first = Begin(0, {1, 2, 3}), second = Begin(1, {4});
    for (int layer = 0; layer < kLayers; ++layer) {
      Ask(first, layer);
      Ask(second, layer);
    }
    Check(first);
    Check(second);
  }
  EXPECT_FALSE(ahead_->gave_up());
  EXPECT_GT(ahead_->attention_us(), 0);
}

TEST_P(CudaAheadAttentionTest, KAndVIn8BitsAreAttendedTo) {
  for (const DType dtype : {DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    SCOPED_TRACE(DTypeName(dtype));
    wire_.kv_dtype = dtype;
    lengths_.clear();
    MakeMemory();
    for (int round = 0; round < 3; ++round) {
      Step step = Begin(0, {1, 2, 3});
      for (int layer = 0; layer < kLayers; ++layer) Ask(step, layer);
      Check(step);
    }
  }
}

TEST_P(CudaAheadAttentionTest, AHostThatSeesEachReplyGetsTheSame) {
  ahead_of_replies_ = false;
  for (int round = 0; round < 2; ++round) {
    Step first = Begin(0, {1, 2}), second = Begin(1, {4});
    for (int layer = 0; layer < kLayers; ++layer) {
      Send(first, layer);
      Send(second, layer);
      Take(second, layer);
      Take(first, layer);
    }
    Check(first);
    Check(second);
  }
}

TEST_P(CudaAheadAttentionTest, ARefusedStepIsAnsweredWithItsReason) {
  Step step = Begin(0, {1});
  AheadStep refused;
  refused.id = StepId{step.id};
  refused.batch = 1;
  refused.stored = {0};
  ahead_->Refuse(refused, 1, Corrupt("sequence 5 has other tokens"));
  step.batch = 1;
  for (int layer = 0; layer < kLayers; ++layer) Ask(step, layer);
  AwaitFetched(1);
  EXPECT_EQ(Lane(1).outcome().code(), StatusCode::kCorrupt);
  EXPECT_EQ(Lane(1).outcome().message(), "sequence 5 has other tokens");
  step.batch = 0;
  for (int layer = 0; layer < kLayers; ++layer) Ask(step, layer);
  Check(step);
}

TEST_P(CudaAheadAttentionTest, AMessageAboutAnotherStepIsNotAnswered) {
  Open(seconds(2));
  Step step = Begin(0, {1});
  ++step.id;
  Ask(step, 0);
  Lane(0).Fetch(0);
  const Deadline deadline = Deadline::After(seconds(20));
  while (!ahead_->gave_up() && !deadline.Passed()) CarryOn();
  EXPECT_TRUE(ahead_->gave_up());
  AwaitFetched(0);
  EXPECT_EQ(Lane(0).outcome().code(), StatusCode::kTimeout);
}

TEST_P(CudaAheadAttentionTest, AMemoryNodeThatIsGoneIsNotWaitedForLongerThanTheLimit) {
  Open(milliseconds(200));
  Step step = Begin(0, {1});
  if (GetParam())
    GiveUpAhead();  // its window stays, as the connection does
  else
    ahead_.reset();
  const TimePoint start = Clock::now();
  for (int layer = 0; layer < kLayers; ++layer) Ask(step, layer);
  AwaitFetched(0);
  EXPECT_EQ(Lane(0).outcome().code(), StatusCode::kTimeout);
  EXPECT_LT(Clock::now() - start, seconds(10));
  lengths_.clear();
  memory_->cache().Release(SequenceId{1});
  reference_->cache().Release(SequenceId{1});
  Open(seconds(20));  // the GPU is as usable as before
  Step again = Begin(0, {1});
  for (int layer = 0; layer < kLayers; ++layer) Ask(again, layer);
  Check(again);
}

TEST_P(CudaAheadAttentionTest, AComputeNodeThatIsGoneLeavesTheGpuUsable) {
  const Step asked = Begin(0, {1});  // of which nothing is sent
  const TimePoint start = Clock::now();
  GiveUpAhead();
  lengths_.clear();
  memory_->cache().Release(SequenceId{1});
  reference_->cache().Release(SequenceId{1});
  Open(seconds(20));
  EXPECT_LT(Clock::now() - start, seconds(20));
  Step again = Begin(0, {1, 2});
  for (int layer = 0; layer < kLayers; ++layer) Ask(again, layer);
  Check(again);
}

TEST_P(CudaAheadAttentionTest, WindowsOfOtherSizesAreRefused) {
  DeviceWindow small = ahead_->window();
  small.bytes = 64;
  EXPECT_EQ(link_->Join(small, true).code(), StatusCode::kInvalidArgument);
  small = link_->window();
  small.bytes = 64;
  EXPECT_EQ(ahead_->Join(small).code(), StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Ways, CudaAheadAttentionTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ByPosts" : "Mapped"; });

}  // namespace cuda_ahead_attention_test
}  // namespace lamina
#endif
