// A KV cache whose layers take turns in memory, against one that is in memory as a whole.
#include "node/kv_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "kernels/kv_store.h"
#include "memory_node/make_kv_device.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace kv_ring_test {

using ::testing::HasSubstr;

constexpr KvShape kShape{.num_layers = 7, .num_kv_heads = 2, .head_dim = 16, .dtype = DType::kBF16};
constexpr int64_t kRowBytes = int64_t{2} * 16 * 2;  // K or V of a token in a layer

class KvRingTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<KvStore>> Store(OffloadOptions offload, int64_t tokens) {
    offload.folder = folder_.path();
    offload.poison = true;
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<KvRing> ring, KvRing::Create(kShape, offload, tokens));
    ring_ = ring.get();
    return KvStore::CreateIn(std::move(ring), kShape, tokens);
  }

  const TemporaryFolder folder_;
  KvRing* ring_ = nullptr;
};

// K and V of a layer in these slots, one after the other.
std::vector<std::byte> Rows(const KvStore& store, int layer, std::span<const TokenSlot> slots) {
  const KvView view = store.View(layer);
  std::vector<std::byte> rows;
  for (const TokenSlot slot : slots) {
    for (const void* const part : {view.k, view.v}) {
      for (int head = 0; head < kShape.num_kv_heads; ++head) {
        const auto* const row = static_cast<const std::byte*>(part) +
                                2 * (head * view.head_stride + int64_t{slot} * view.slot_stride);
        rows.insert(rows.end(), row, row + 2 * kShape.head_dim);
      }
    }
  }
  return rows;
}

TEST_F(KvRingTest, EveryLayerHoldsWhatWasWritten) {
  for (const OffloadOptions& offload :
       {OffloadOptions{.interval = 1, .buffers = 1}, OffloadOptions{.interval = 1, .buffers = 2},
        OffloadOptions{.interval = 2, .buffers = 2},
        OffloadOptions{.interval = 3, .num_in_group = 2, .buffers = 3},
        OffloadOptions{.expansion = 1.2}, OffloadOptions{.expansion = 2},
        OffloadOptions{.expansion = 3.5}}) {
    constexpr int64_t kTokens = 96;
    const Result<std::unique_ptr<KvStore>> turns = Store(offload, kTokens);
    ASSERT_TRUE(turns.ok()) << turns.status();
    const std::unique_ptr<KvStore> whole = *KvStore::Create(kShape, kTokens);
    std::mt19937 random(3);
    uint64_t step = 0;
    int64_t length = 0;
    std::vector<TokenSlot> slots;
    // Steps of one sequence, which write a token or several in every layer and read all; sometimes
    // a push of another layer comes in between.
    for (int round = 0; round < 40; ++round) {
      const int64_t more = std::min<int64_t>(1 + random() % 3, kTokens - length);
      if (more == 0) break;
      std::vector<TokenSlot> new_slots;
      for (int64_t i = 0; i < more; ++i)
        new_slots.push_back(static_cast<TokenSlot>(kTokens - 1 - length - i));
      ++step;
      for (KvStore* const store : {turns->get(), whole.get()})
        ASSERT_TRUE(store->Append(SequenceId{1}, length, new_slots, StepId{step}).ok());
      slots.insert(slots.end(), new_slots.begin(), new_slots.end());
      for (int layer = 0; layer < kShape.num_layers; ++layer) {
        for (int64_t i = 0; i < more; ++i) {
          std::vector<std::byte> k(kRowBytes), v(kRowBytes);
          for (std::byte& byte : k) byte = std::byte(random() % 256);
          for (std::byte& byte : v) byte = std::byte(random() % 256);
          for (KvStore* const store : {turns->get(), whole.get()}) {
            ASSERT_TRUE(
                store->WriteRaw(layer, SequenceId{1}, length + i, k.data(), v.data(), StepId{step})
                    .ok());
          }
        }
        if (random() % 4 == 0) {
          const int other = static_cast<int>(random() % kShape.num_layers);
          const auto before = std::span(slots).first(static_cast<size_t>(length));
          ASSERT_EQ(Rows(**turns, other, before), Rows(*whole, other, before)) << other;
        }
        ASSERT_EQ(Rows(**turns, layer, slots), Rows(*whole, layer, slots)) << layer;
      }
      length += more;
    }
    EXPECT_GT(ring_->stats().num_entered, 30);
    EXPECT_GT(ring_->stats().bytes_copied_back, 0);
  }
}

// As many layers have a place as is said meanwhile: slots that there is room for hold what was
// written in them, and no other is accepted.
TEST_F(KvRingTest, EveryLayerHoldsWhatWasWrittenWhileTheirPlacesChange) {
  constexpr int64_t kTokens = 64;  // with all layers inside
  const Result<std::unique_ptr<KvStore>> turns = Store({.expansion = 3, .is_auto = true}, kTokens);
  ASSERT_TRUE(turns.ok()) << turns.status();
  KvStore& store = **turns;
  const ElasticKv kv = store.elastic_layers()->kv();
  ASSERT_EQ(kv.least_inside, 3);
  EXPECT_EQ(store.capacity_tokens(), kTokens);
  std::mt19937 random(5);
  // By sequence, which has one token: its slot, and K and V of each layer.
  struct Token {
    TokenSlot slot = 0;
    std::vector<std::vector<std::byte>> rows;
  };
  std::map<SequenceId, Token> tokens;
  std::set<TokenSlot> used;
  uint64_t next = 1;
  int64_t most = 0;
  for (int round = 0; round < 400; ++round) {
    if (round % 20 == 19) {
      const int inside = kv.least_inside + static_cast<int>(random() % 5);
      const int64_t room = kv.Tokens(inside);
      if (!used.empty() && *used.rbegin() >= room) {
        EXPECT_EQ(store.SetLayersInside(inside).code(), StatusCode::kCorrupt);
        for (auto token = tokens.begin(); token != tokens.end();) {
          if (token->second.slot < room) {
            ++token;
            continue;
          }
          store.Release(token->first);
          used.erase(token->second.slot);
          token = tokens.erase(token);
        }
      }
      const Status set = store.SetLayersInside(inside);
      ASSERT_TRUE(set.ok()) << set;
      EXPECT_LE(store.capacity_tokens(), room) << "there is more only when layers have gone";
    }
    const int64_t capacity = store.capacity_tokens();
    most = std::max(most, capacity);
    const auto beyond = static_cast<TokenSlot>(capacity);
    EXPECT_EQ(store.Append(SequenceId{next}, 0, {&beyond, 1}, StepId{1}).code(),
              StatusCode::kCorrupt);
    std::optional<SequenceId> added;
    const auto slot = static_cast<TokenSlot>(random() % static_cast<uint64_t>(capacity));
    if (used.insert(slot).second) {
      added = SequenceId{next++};
      ASSERT_TRUE(store.Append(*added, 0, {&slot, 1}, StepId{1}).ok());
      tokens[*added].slot = slot;
    }
    for (int layer = 0; layer < kShape.num_layers; ++layer) {
      if (added) {
        std::vector<std::byte> k(kRowBytes), v(kRowBytes);
        for (std::byte& byte : k) byte = std::byte(random() % 256);
        for (std::byte& byte : v) byte = std::byte(random() % 256);
        ASSERT_TRUE(store.WriteRaw(layer, *added, 0, k.data(), v.data(), StepId{1}).ok());
        k.insert(k.end(), v.begin(), v.end());
        tokens[*added].rows.push_back(std::move(k));
      }
      for (const auto& [sequence, token] : tokens)
        ASSERT_EQ(Rows(store, layer, {&token.slot, 1}), token.rows[static_cast<size_t>(layer)]);
    }
  }
  EXPECT_EQ(most, kv.Tokens(kv.least_inside));
  EXPECT_GT(ring_->stats().bytes_copied_back, 0);
}

TEST_F(KvRingTest, OrdersOfPlacesThatThereCannotBeAreRefused) {
  const Result<std::unique_ptr<KvStore>> turns = Store({.expansion = 3, .is_auto = true}, 64);
  ASSERT_TRUE(turns.ok()) << turns.status();
  for (const int inside : {-1, 0, 2, 8, 1 << 30}) {
    const Status set = (*turns)->SetLayersInside(inside);
    EXPECT_EQ(set.code(), StatusCode::kInvalidArgument) << inside;
    EXPECT_THAT(set.message(), HasSubstr("at least 3")) << inside;
  }
  const Result<std::unique_ptr<KvStore>> fixed = Store({.expansion = 2}, 64);
  EXPECT_EQ((*fixed)->SetLayersInside(4).code(), StatusCode::kUnimplemented);
  EXPECT_EQ((*fixed)->elastic_layers(), nullptr);
}

TEST_F(KvRingTest, MadeUpTokensAreTheSame) {
  const Result<std::unique_ptr<KvStore>> turns = Store({.interval = 1}, 32);
  ASSERT_TRUE(turns.ok()) << turns.status();
  const std::unique_ptr<KvStore> whole = *KvStore::Create(kShape, 32);
  const std::vector<TokenSlot> slots = {5, 6, 7, 20};
  for (KvStore* const store : {turns->get(), whole.get()})
    ASSERT_TRUE(store->AppendDummy(SequenceId{1}, 0, slots, StepId{1}).ok());
  for (int layer = 0; layer < kShape.num_layers; ++layer)
    EXPECT_EQ(Rows(**turns, layer, slots), Rows(*whole, layer, slots)) << layer;
}

// n / (n - m + buffers) times as many tokens as without, for m of n layers outside.
TEST_F(KvRingTest, MoreTokensFindRoomInTheSameMemory) {
  MemoryNodeOptions options;
  options.memory_bytes = 700 * kShape.bytes_per_token();
  EXPECT_EQ(*KvCapacityTokens(options, kShape), 700);
  options.offload = {.interval = 1, .folder = folder_.path(), .buffers = 2};
  EXPECT_EQ(*KvCapacityTokens(options, kShape), 700 * 7 / 2);
  options.offload.interval = 2;
  EXPECT_EQ(*KvCapacityTokens(options, kShape), 700 * 7 / 6);
  options.offload = {.expansion = 1.4, .folder = folder_.path()};
  EXPECT_EQ(*KvCapacityTokens(options, kShape), 700 * 7 / 5) << "5 of 7 layers have room";
  options.offload = {.interval = 3, .folder = folder_.path()};
  EXPECT_THAT(KvCapacityTokens(options, kShape).status().message(),
              HasSubstr("2 of 7 blocks would lie outside and take turns in 2 buffers"));
}

TEST_F(KvRingTest, SaysWhichDevicesCannot) {
  MemoryNodeOptions options;
  options.memory_bytes = 1 << 20;
  options.offload = {.interval = 1, .folder = folder_.path()};
  EXPECT_TRUE(CheckKvDevice(options).ok());
  DeviceSpec modelled;
  modelled.memory_bytes = 1 << 30;
  options.device = modelled;
  EXPECT_EQ(CheckKvDevice(options).code(), StatusCode::kUnimplemented);
}

}  // namespace kv_ring_test
}  // namespace lamina
