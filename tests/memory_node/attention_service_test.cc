#include "memory_node/attention_service.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "memory_node/cpu_kv_device.h"

namespace lamina {
namespace attention_service_test {

constexpr uint64_t kEpoch = 9;
constexpr WireShape kWire{
    .num_heads = 4, .num_kv_heads = 2, .head_dim = 8, .kv_dtype = DType::kF32, .max_rows = 4};
constexpr float kScale = 0.35f;
constexpr size_t kQ = 32, kKv = 16;  // floats per row

using Row = std::vector<float>;

// K and V of a sequence as this test remembers them, and attention by the textbook.
struct Remembered {
  std::vector<Row> k, v;

  Row Attend(const Row& q) const {
    Row out(kQ, 0);
    for (size_t head = 0; head < 4; ++head) {
      const size_t kv = head / 2;
      std::vector<double> weight;
      double sum = 0;
      for (const Row& key : k) {
        double score = 0;
        for (size_t d = 0; d < 8; ++d) score += double{q[head * 8 + d]} * double{key[kv * 8 + d]};
        weight.push_back(std::exp(score * double{kScale}));
        sum += weight.back();
      }
      for (size_t d = 0; d < 8; ++d) {
        double value = 0;
        for (size_t t = 0; t < v.size(); ++t) value += weight[t] / sum * double{v[t][kv * 8 + d]};
        out[head * 8 + d] = static_cast<float>(value);
      }
    }
    return out;
  }
};

class AttentionServiceTest : public ::testing::Test {
 protected:
  AttentionServiceTest() {
    const KvShape shape{.num_layers = 1, .num_kv_heads = 2, .head_dim = 8, .dtype = DType::kF32};
    service_ = std::make_unique<AttentionService>(
        kWire, ScoreRules{kScale}, kEpoch,
        KvState{std::make_unique<CpuKvDevice>(*KvStore::Create(shape, 16), team_)});
  }

  void ExpectWireAndKvDtypes(DType kv_dtype);

  Row Random(size_t n) {
    Row row(n);
    for (float& x : row) x = std::normal_distribution<float>()(random_);
    return row;
  }

  // Seals rows into `area_` and opens them as the daemon does.
  ReceivedMessage Pack(MessageKind kind, uint64_t step, const std::vector<std::vector<Row>>& parts,
                       uint64_t epoch = kEpoch, uint16_t flags = 0) {
    Row flat;
    for (const std::vector<Row>& part : parts) {
      for (const Row& row : part) flat.insert(flat.end(), row.begin(), row.end());
    }
    area_.assign(sizeof(MessageHeader) + flat.size() * 4, std::byte{});
    if (!flat.empty())
      std::memcpy(area_.data() + sizeof(MessageHeader), flat.data(), flat.size() * 4);
    const MessageHeader header =
        Seal({.kind = kind,
              .epoch = epoch,
              .step = step,
              .num_rows = static_cast<uint32_t>(parts[0].size()),
              .flags = flags},
             std::span<const std::byte>(area_).subspan(sizeof(MessageHeader)), true);
    std::memcpy(area_.data(), &header, sizeof(header));
    return *Open(area_, kind, true);
  }

  // As the compute node sees it. The payload is that in `out`.
  static ReceivedMessage AsMessage(const AttentionService::Reply& reply,
                                   std::span<const std::byte> out) {
    return {reply.header, out.first(reply.payload_bytes)};
  }

  Result<std::vector<Row>> Decode(const ReceivedMessage& message) {
    std::vector<std::byte> reply(kWire.compute_window_bytes());
    const AttentionService::Reply written = service_->Decode(message, reply);
    const ReceivedMessage answer = AsMessage(written, reply);
    if (answer.header.status != 0) {
      return Status(
          static_cast<StatusCode>(answer.header.status),
          std::string(reinterpret_cast<const char*>(answer.payload.data()), answer.payload.size()));
    }
    std::vector<Row> rows(answer.payload.size() / 4 / kQ, Row(kQ));
    for (size_t i = 0; i < rows.size(); ++i)
      std::memcpy(rows[i].data(), answer.payload.data() + i * kQ * 4, kQ * 4);
    return rows;
  }

  // A prompt of `slots.size()` tokens is ordered and pushed in `step`.
  void Prefill(SequenceId sequence, uint64_t step, const std::vector<TokenSlot>& slots) {
    MemoryOrder order;
    order.step = StepId{step};
    PrefillChunk& chunk = order.prefill.emplace_back();
    chunk.sequence = sequence;
    chunk.slots.assign(slots.begin(), slots.end());
    service_->Apply(order);
    Remembered& remembered = remembered_[sequence];
    for (size_t i = 0; i < slots.size(); ++i) {
      remembered.k.push_back(Random(kKv));
      remembered.v.push_back(Random(kKv));
    }
    ASSERT_TRUE(service_->Push(Pack(MessageKind::kPush, step, {remembered.k, remembered.v})).ok());
  }

  void OrderDecode(uint64_t step, const std::vector<std::pair<SequenceId, TokenSlot>>& rows) {
    MemoryOrder order;
    order.step = StepId{step};
    for (const auto& [sequence, slot] : rows) {
      DecodeRow& row = order.decode.emplace_back();
      row.sequence = sequence;
      row.num_stored = static_cast<int64_t>(remembered_[sequence].k.size());
      row.slot = slot;
    }
    service_->Apply(order);
  }

  struct DecodeRows {
    std::vector<Row> q, k, v, expected;
  };

  // One more row for the sequence, behind the tokens that it has, with random contents.
  void AddRow(MemoryOrder& order, SequenceId sequence, TokenSlot slot, DecodeRows& rows) {
    Remembered& remembered = remembered_[sequence];
    DecodeRow& row = order.decode.emplace_back();
    row.sequence = sequence;
    row.num_stored = static_cast<int64_t>(remembered.k.size());
    row.slot = slot;
    rows.q.push_back(Random(kQ));
    rows.k.push_back(Random(kKv));
    rows.v.push_back(Random(kKv));
    remembered.k.push_back(rows.k.back());
    remembered.v.push_back(rows.v.back());
    rows.expected.push_back(remembered.Attend(rows.q.back()));
  }

  std::mt19937 random_{1};
  WorkerTeam team_{2};
  std::unique_ptr<AttentionService> service_;
  std::map<SequenceId, Remembered> remembered_;
  std::vector<std::byte> area_;
};

constexpr SequenceId kA{1}, kB{2};

TEST_F(AttentionServiceTest, DecodesOverPushedAndNewTokens) {
  Prefill(kA, 1, {5, 3, 8});
  Prefill(kB, 2, {0});
  for (uint64_t step = 3; step < 6; ++step) {
    const auto slot = static_cast<TokenSlot>(step);
    OrderDecode(step, {{kA, slot + 6}, {kB, slot + 9}});
    std::vector<Row> q, k, v;
    for (const SequenceId sequence : {kA, kB}) {
      q.push_back(Random(kQ));
      k.push_back(Random(kKv));
      v.push_back(Random(kKv));
      remembered_[sequence].k.push_back(k.back());
      remembered_[sequence].v.push_back(v.back());
    }
    const Result<std::vector<Row>> out = Decode(Pack(MessageKind::kDecode, step, {q, k, v}));
    ASSERT_TRUE(out.ok()) << out.status();
    for (size_t i = 0; i < 2; ++i) {
      const Row expected = remembered_[i == 0 ? kA : kB].Attend(q[i]);
      for (size_t d = 0; d < kQ; ++d)
        EXPECT_NEAR((*out)[i][d], expected[d], 1e-5) << "row " << i << " element " << d;
    }
  }
}

// This node has positions 2, 3 and 6 to 8 of a sequence; the rest is elsewhere. Each row sees those
// of the last 4 positions.
TEST_F(AttentionServiceTest, AWindowIsCountedInPositionsOfTheSequence) {
  const KvShape shape{.num_layers = 1, .num_kv_heads = 2, .head_dim = 8, .dtype = DType::kF32};
  for (const bool in_two_parts : {false, true}) {
    SCOPED_TRACE(in_two_parts ? "in two parts" : "in one part");
    service_ = std::make_unique<AttentionService>(
        kWire, ScoreRules{.scale = kScale, .windows = {AttentionWindow{4}}}, kEpoch,
        KvState{std::make_unique<CpuKvDevice>(*KvStore::Create(shape, 16), team_)});
    Remembered all;
    uint64_t step = 0;
    const auto prefill = [&](int64_t first_position, const std::vector<TokenSlot>& slots) {
      MemoryOrder order;
      order.step = StepId{++step};
      PrefillChunk& chunk = order.prefill.emplace_back();
      chunk.sequence = kA;
      chunk.num_stored = std::ssize(all.k);
      chunk.first_position = first_position;
      chunk.slots.assign(slots.begin(), slots.end());
      service_->Apply(order);
      std::vector<Row> k, v;
      for (size_t i = 0; i < slots.size(); ++i) {
        k.push_back(Random(kKv));
        v.push_back(Random(kKv));
      }
      all.k.insert(all.k.end(), k.begin(), k.end());
      all.v.insert(all.v.end(), v.begin(), v.end());
      ASSERT_TRUE(service_->Push(Pack(MessageKind::kPush, step, {k, v})).ok());
    };
    prefill(2, {5, 3});
    prefill(6, {8, 1});
    // position of the row, whether its token is stored here, the first token here that it sees
    struct Step {
      int64_t position;
      bool stores;
      size_t first;
    };
    for (const Step& now :
         {Step{8, true, 2}, {9, false, 2}, {10, false, 3}, {11, false, 4}, {12, false, 5}}) {
      SCOPED_TRACE("position " + std::to_string(now.position));
      MemoryOrder order;
      order.step = StepId{++step};
      DecodeRow& row = order.decode.emplace_back();
      row.sequence = kA;
      row.num_stored = std::ssize(all.k);
      row.position = now.position;
      if (now.stores) row.slot = 9;
      service_->Apply(order);
      const Row q = Random(kQ);
      std::vector<Row> k, v;
      if (now.stores) {
        k.push_back(Random(kKv));
        v.push_back(Random(kKv));
        all.k.push_back(k[0]);
        all.v.push_back(v[0]);
      }
      Remembered seen;
      seen.k.assign(all.k.begin() + static_cast<std::ptrdiff_t>(now.first), all.k.end());
      seen.v.assign(all.v.begin() + static_cast<std::ptrdiff_t>(now.first), all.v.end());
      const Row expected = seen.k.empty() ? Row(kQ, 0) : seen.Attend(q);
      std::vector<std::byte> reply(kWire.reply_area_bytes());
      AttentionService::Reply written;
      if (in_two_parts) {
        const ReceivedMessage queries = Pack(MessageKind::kQueries, step, {{q}}, kEpoch, kWantsLse);
        const std::vector<std::byte> first_part = std::move(area_);
        AttentionService::Begun begun = service_->Begin(queries, reply);
        ReceivedMessage second = Pack(MessageKind::kDecode, step, {k, v}, kEpoch, kWantsLse);
        second.header.num_rows = 1;
        written = service_->End(begun, second, reply, [](size_t) { return false; });
      } else {
        written = service_->Decode(Pack(MessageKind::kDecode, step, {{q}, k, v}, kEpoch, kWantsLse),
                                   reply);
      }
      const ReceivedMessage answer = AsMessage(written, reply);
      ASSERT_EQ(answer.header.status, 0);
      Row out(kQ);
      std::memcpy(out.data(), answer.payload.data(), kQ * 4);
      for (size_t d = 0; d < kQ; ++d) EXPECT_NEAR(out[d], expected[d], 1e-5) << "element " << d;
    }
  }
}

// No push comes for them: rows that decode find them stored, and rows of later pushes are not
// counted from them.
TEST_F(AttentionServiceTest, MadeUpPromptsAreThereWithoutAPush) {
  MemoryOrder order;
  order.step = StepId{1};
  order.dummy_prefill = true;
  PrefillChunk& chunk = order.prefill.emplace_back();
  chunk.sequence = kA;
  for (const uint32_t slot : {5u, 3u, 8u}) chunk.slots.push_back(slot);
  service_->Apply(order);
  EXPECT_EQ(service_->stats().used_tokens, 3);
  remembered_[kA].k.resize(3);
  OrderDecode(2, {{kA, 1}});
  const Row q = Random(kQ), k = Random(kKv), v = Random(kKv);
  const Result<std::vector<Row>> out = Decode(Pack(MessageKind::kDecode, 2, {{q}, {k}, {v}}));
  ASSERT_TRUE(out.ok()) << out.status();
  for (const float x : out->front()) EXPECT_TRUE(std::isfinite(x));
  EXPECT_FALSE(service_->Push(Pack(MessageKind::kPush, 1, {{k}, {v}})).ok())
      << "there is no row for it";
}

// Queries first, k and v behind them: the same attention, with outputs that are ready early handed
// out early.
TEST_F(AttentionServiceTest, ADecodeInTwoPartsGivesTheSameOutputs) {
  Prefill(kA, 1, {5, 3});
  Prefill(kB, 2, {0});
  MemoryOrder order;
  order.step = StepId{3};
  DecodeRows rows;
  // The last two have no token yet.
  const std::vector<SequenceId> sequences = {kA, kB, SequenceId{3}, SequenceId{4}};
  for (size_t i = 0; i < sequences.size(); ++i) {
    AddRow(order, sequences[i], static_cast<TokenSlot>(8 + i), rows);
  }
  service_->Apply(order);
  std::vector<std::byte> reply(kWire.reply_area_bytes());
  const ReceivedMessage queries = Pack(MessageKind::kQueries, 3, {rows.q});
  const std::vector<std::byte> first_part = std::move(area_);  // stays in its area meanwhile
  AttentionService::Begun begun = service_->Begin(queries, reply);
  EXPECT_EQ(begun.num_rows, 3u) << "of four";
  size_t early_bytes = 0;
  ReceivedMessage second = Pack(MessageKind::kDecode, 3, {rows.k, rows.v});
  const AttentionService::Reply written = service_->End(begun, second, reply, [&](size_t bytes) {
    early_bytes = bytes;
    for (size_t i = 0; i < 3 * kQ; ++i) {
      float out = 0;
      std::memcpy(&out, reply.data() + i * 4, 4);
      EXPECT_NEAR(out, rows.expected[i / kQ][i % kQ], 1e-5)
          << "complete before the last row is computed";
    }
    return true;
  });
  EXPECT_EQ(early_bytes, 3 * kQ * 4);
  EXPECT_EQ(begun.early_bytes, early_bytes);
  const ReceivedMessage answer = AsMessage(written, reply);
  EXPECT_EQ(answer.header.status, 0);
  ASSERT_EQ(answer.payload.size(), 4 * kQ * 4) << "no log-sum-exp, as nobody wanted one";
  for (size_t i = 0; i < 4 * kQ; ++i) {
    float out = 0;
    std::memcpy(&out, answer.payload.data() + i * 4, 4);
    EXPECT_NEAR(out, rows.expected[i / kQ][i % kQ], 1e-5) << "row " << i / kQ;
  }
}

// Its first tokens are those of another sequence; the rest of its prompt comes as decode rows,
// several in one step.
TEST_F(AttentionServiceTest, ASequenceMayShareItsBeginningAndHaveSeveralRows) {
  Prefill(kA, 1, {5, 3, 8});
  for (const bool in_two_parts : {false, true}) {
    const SequenceId sequence = in_two_parts ? SequenceId{3} : kB;
    const uint64_t step = in_two_parts ? 3 : 2;
    Remembered& remembered = remembered_[sequence];
    for (size_t i = 0; i < 2; ++i) {
      remembered.k.push_back(remembered_[kA].k[i]);
      remembered.v.push_back(remembered_[kA].v[i]);
    }
    MemoryOrder order;
    order.step = StepId{step};
    SharedPrefix& shared = order.shared.emplace_back();
    shared.sequence = sequence;
    for (const uint32_t slot : {5u, 3u}) shared.slots.push_back(slot);
    DecodeRows rows;
    for (uint32_t i = 0; i < 3; ++i) {
      AddRow(order, sequence, (in_two_parts ? 9 : 12) + i, rows);
    }
    service_->Apply(order);
    std::vector<Row> out;
    if (in_two_parts) {
      std::vector<std::byte> reply(kWire.reply_area_bytes());
      const ReceivedMessage queries = Pack(MessageKind::kQueries, step, {rows.q});
      const std::vector<std::byte> first_part = std::move(area_);
      AttentionService::Begun begun = service_->Begin(queries, reply);
      const AttentionService::Reply written =
          service_->End(begun, Pack(MessageKind::kDecode, step, {rows.k, rows.v}), reply,
                        [](size_t) { return false; });
      const ReceivedMessage answer = AsMessage(written, reply);
      ASSERT_EQ(answer.header.status, 0);
      out.assign(3, Row(kQ));
      for (size_t i = 0; i < 3; ++i)
        std::memcpy(out[i].data(), answer.payload.data() + i * kQ * 4, kQ * 4);
    } else {
      const Result<std::vector<Row>> decoded =
          Decode(Pack(MessageKind::kDecode, step, {rows.q, rows.k, rows.v}));
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      out = *decoded;
    }
    for (size_t i = 0; i < 3; ++i) {
      for (size_t d = 0; d < kQ; ++d)
        EXPECT_NEAR(out[i][d], rows.expected[i][d], 1e-5) << "row " << i << " element " << d;
    }
  }
  EXPECT_EQ(service_->stats().used_tokens, 13);
}

// What the order says of one sequence contradicts what is stored here.
TEST_F(AttentionServiceTest, ABadRowDoesNotFailTheOthers) {
  Prefill(kA, 1, {5, 3});
  Prefill(kB, 2, {0});
  uint64_t step = 3;
  uint32_t slot = 6;
  for (const bool in_two_parts : {false, true}) {
    for (const uint16_t flags : {uint16_t{0}, kWantsLse}) {
      SCOPED_TRACE((in_two_parts ? "in two parts, flags " : "in one part, flags ") +
                   std::to_string(flags));
      MemoryOrder order;
      order.step = StepId{step};
      DecodeRows rows;
      AddRow(order, kA, slot++, rows);
      const SequenceId bad{step + 100};
      AddRow(order, bad, 15, rows);
      order.decode[1].num_stored = 7;
      AddRow(order, kB, slot++, rows);
      service_->Apply(order);
      std::vector<std::byte> reply(kWire.reply_area_bytes(), std::byte{0x55});
      AttentionService::Reply written;
      if (in_two_parts) {
        const ReceivedMessage queries = Pack(MessageKind::kQueries, step, {rows.q}, kEpoch, flags);
        const std::vector<std::byte> first_part = std::move(area_);
        AttentionService::Begun begun = service_->Begin(queries, reply);
        const ReceivedMessage second =
            Pack(MessageKind::kDecode, step, {rows.k, rows.v}, kEpoch, flags);
        written = service_->End(begun, second, reply, [](size_t) { return false; });
      } else {
        written = service_->Decode(
            Pack(MessageKind::kDecode, step, {rows.q, rows.k, rows.v}, kEpoch, flags), reply);
      }
      const ReceivedMessage answer = AsMessage(written, reply);
      ASSERT_EQ(answer.header.status, 0);
      ASSERT_NE(answer.header.flags & kFailedRows, 0);
      const size_t output_bytes =
          3 * (kWire.q_row_bytes() + (flags != 0 ? kWire.lse_row_bytes() : 0));
      const Result<FailedRows> failed = FailedRows::Read(answer.payload.subspan(output_bytes), 3);
      ASSERT_TRUE(failed.ok()) << failed.status();
      EXPECT_EQ(failed->rows, std::vector<uint32_t>{1});
      EXPECT_EQ(failed->why.code(), StatusCode::kNotFound);
      EXPECT_EQ(failed->why.message(),
                "sequence " + std::to_string(bad.value) + " is not stored here");
      for (const size_t row : {size_t{0}, size_t{2}}) {
        for (size_t d = 0; d < kQ; ++d) {
          float out = 0;
          std::memcpy(&out, answer.payload.data() + (row * kQ + d) * 4, 4);
          EXPECT_NEAR(out, rows.expected[row][d], 1e-5) << "row " << row << " element " << d;
        }
      }
      ++step;
    }
  }
}

TEST_F(AttentionServiceTest, KeysAndValuesOfAnotherMessageAreAnError) {
  Prefill(kA, 1, {0});
  OrderDecode(2, {{kA, 1}});
  std::vector<std::byte> reply(kWire.reply_area_bytes());
  const ReceivedMessage queries = Pack(MessageKind::kQueries, 2, {{Random(kQ)}});
  const std::vector<std::byte> first_part = std::move(area_);
  AttentionService::Begun begun = service_->Begin(queries, reply);
  ReceivedMessage second = Pack(MessageKind::kDecode, 2, {{Random(kKv)}, {Random(kKv)}});
  second.header.layer = 1;
  const auto never = [](size_t) { return ADD_FAILURE(), false; };
  const AttentionService::Reply written = service_->End(begun, second, reply, never);
  EXPECT_EQ(written.header.status, static_cast<uint16_t>(StatusCode::kCorrupt));
}

// Attention over a single token is its v, whatever q is.
void AttentionServiceTest::ExpectWireAndKvDtypes(DType kv_dtype) {
  WireShape wire = kWire;
  wire.wire_dtype = DType::kF16;
  wire.kv_dtype = kv_dtype;
  const KvShape shape{.num_layers = 1, .num_kv_heads = 2, .head_dim = 8, .dtype = kv_dtype};
  AttentionService service(
      wire, {kScale}, kEpoch,
      KvState{std::make_unique<CpuKvDevice>(*KvStore::Create(shape, 16), team_)});
  MemoryOrder order;
  order.step = StepId{1};
  for (const uint64_t sequence : {1, 2}) {
    DecodeRow& row = order.decode.emplace_back();
    row.sequence = SequenceId{sequence};
    row.slot = static_cast<uint32_t>(sequence);
  }
  service.Apply(order);
  std::vector<std::byte> payload;
  const auto append = [&](auto element) {
    const auto bytes = std::as_bytes(std::span(&element, 1));
    payload.insert(payload.end(), bytes.begin(), bytes.end());
  };
  // 8 bits hold them all, and their halves and doubles too.
  const auto kv_element = [](size_t i) {
    return static_cast<float>(i % 8 * 2) * (i < 3 * kKv ? 1 : -1);
  };
  for (size_t i = 0; i < 2 * kQ; ++i) append(ToF16(0.25f * static_cast<float>(i)));
  for (size_t i = 0; i < 4 * kKv; ++i) {  // k, k, v, v
    // With scales of 0.5 and 2 for the two kv_heads of each row.
    const float scale = !HasScales(kv_dtype) ? 1.0f : i / 8 % 2 == 0 ? 0.5f : 2.0f;
    const float code = kv_element(i) / scale;
    if (kv_dtype == DType::kF8 || kv_dtype == DType::kF8Scaled) {
      append(ToF8(code));
    } else if (kv_dtype == DType::kI8Scaled) {
      append(static_cast<int8_t>(code));
    } else {
      append(ToBF16(code));
    }
    if (HasScales(kv_dtype) && i % kKv == kKv - 1) {
      append(0.5f);
      append(2.0f);
    }
  }
  const auto decode = [&] {
    MessageHeader header{.kind = MessageKind::kDecode, .epoch = kEpoch, .step = 1, .num_rows = 2};
    header = Seal(header, payload, false);
    area_.resize(wire.reply_area_bytes());
    return AsMessage(service.Decode({header, payload}, area_), area_);
  };
  const ReceivedMessage reply = decode();
  EXPECT_EQ(reply.header.status, 0);
  ASSERT_EQ(reply.payload.size(), 2 * kQ * 2);
  for (size_t i = 0; i < 2 * kQ; ++i) {
    F16 out;
    std::memcpy(&out, reply.payload.data() + i * 2, 2);
    const size_t row = i / kQ, head = i % kQ / 8, d = i % 8;
    EXPECT_EQ(ToFloat(out), kv_element(2 * kKv + row * kKv + head / 2 * 8 + d))
        << "row " << row << " head " << head;
  }
  const std::vector<std::byte> good = payload;
  payload.resize(payload.size() + 2 * kQ);  // as if a row's q were fp32
  EXPECT_EQ(decode().header.status, static_cast<uint16_t>(StatusCode::kCorrupt));
  if (!HasScales(kv_dtype)) return;
  // Codes without scales, and a scale too few.
  for (const size_t missing : {size_t{4} * 2 * sizeof(float), sizeof(float)}) {
    payload = good;
    payload.resize(payload.size() - missing);
    EXPECT_EQ(decode().header.status, static_cast<uint16_t>(StatusCode::kCorrupt));
  }
}

TEST_F(AttentionServiceTest, QueriesAndOutputsHaveTheWireDtypeAndKvItsOwn) {
  ExpectWireAndKvDtypes(DType::kBF16);
  ExpectWireAndKvDtypes(DType::kF8);
  ExpectWireAndKvDtypes(DType::kI8Scaled);
  ExpectWireAndKvDtypes(DType::kF8Scaled);
}

TEST_F(AttentionServiceTest, AnswersAnErrorInsteadOfAttentionOverMissingTokens) {
  MemoryOrder order;  // a prompt whose push never comes
  order.step = StepId{1};
  PrefillChunk& chunk = order.prefill.emplace_back();
  chunk.sequence = kA;
  chunk.slots.push_back(0);
  service_->Apply(order);
  remembered_[kA].k.push_back(Random(kKv));
  OrderDecode(2, {{kA, 1}});
  const Result<std::vector<Row>> out =
      Decode(Pack(MessageKind::kDecode, 2, {{Random(kQ)}, {Random(kKv)}, {Random(kKv)}}));
  EXPECT_EQ(out.status().code(), StatusCode::kCorrupt);
}

TEST_F(AttentionServiceTest, AnswersAnErrorForRowsThatWereNotOrdered) {
  Prefill(kA, 1, {0});
  OrderDecode(2, {{kA, 1}});
  EXPECT_FALSE(
      Decode(Pack(MessageKind::kDecode, 3, {{Random(kQ)}, {Random(kKv)}, {Random(kKv)}})).ok());
  EXPECT_FALSE(
      Decode(
          Pack(MessageKind::kDecode, 2,
               {{Random(kQ), Random(kQ)}, {Random(kKv), Random(kKv)}, {Random(kKv), Random(kKv)}}))
          .ok());
}

TEST_F(AttentionServiceTest, TellsItsTimesToWhoAsks) {
  Prefill(kA, 1, {0});
  const std::vector<std::vector<Row>> rows = {{Random(kQ)}, {Random(kKv)}, {Random(kKv)}};
  const auto answer = [&](uint64_t step, uint16_t flags) {
    std::vector<std::byte> reply(kWire.compute_window_bytes());
    const AttentionService::Reply written =
        service_->Decode(Pack(MessageKind::kDecode, step, rows, kEpoch, flags), reply);
    const auto [header, whole] = AsMessage(written, reply);
    std::span<const std::byte> payload = whole;
    EXPECT_EQ((header.flags & kTimes) != 0, (flags & kTimes) != 0);
    const std::optional<ReplyTimes> times =
        (flags & kTimes) != 0 ? CutReplyTimes(payload) : std::nullopt;
    EXPECT_EQ(header.status == 0, payload.size() == kQ * 4)
        << "outputs or a sentence, and nothing else";
    return times.value_or(ReplyTimes{});
  };
  OrderDecode(2, {{kA, 1}});
  const int64_t ordered = NowNs();
  const ReplyTimes first = answer(2, kTimes);
  EXPECT_GE(first.started_ns, ordered);
  EXPECT_GT(first.done_ns, first.started_ns);
  EXPECT_GT(first.bubble_ns, 0) << "since the order";
  EXPECT_EQ(answer(2, 0).clock, 0u);
  EXPECT_GT(answer(2, kTimes | kLastLayer).bubble_ns, 0);
  EXPECT_EQ(answer(2, kTimes).bubble_ns, 0) << "the step is over";
  EXPECT_GT(answer(9, kTimes).clock, 0u) << "errors too";
}

TEST_F(AttentionServiceTest, MessagesOfEarlierStepsOfTheBatchAreStaleAfterADecode) {
  Prefill(kA, 1, {0});
  OrderDecode(5, {{kA, 1}});
  const std::vector<std::vector<Row>> rows = {{Random(kQ)}, {Random(kKv)}, {Random(kKv)}};
  const auto timing_of = [&](MessageKind kind, uint64_t step, uint64_t epoch) {
    return service_->steps().TimingOf(Pack(kind, step, rows, epoch).header);
  };
  using Timing = OrderedSteps::Timing;
  EXPECT_EQ(timing_of(MessageKind::kDecode, 5, kEpoch + 1), Timing::kStale) << "another epoch";
  EXPECT_EQ(timing_of(MessageKind::kDecode, 3, kEpoch), Timing::kStale)
      << "a step that was never ordered here";
  EXPECT_EQ(timing_of(MessageKind::kDecode, 5, kEpoch), Timing::kDue);
  EXPECT_EQ(timing_of(MessageKind::kPush, 1, kEpoch), Timing::kDue);
  ASSERT_TRUE(Decode(Pack(MessageKind::kDecode, 5, rows)).ok());
  EXPECT_EQ(timing_of(MessageKind::kPush, 1, kEpoch), Timing::kStale) << "a step that is over";
}

TEST_F(AttentionServiceTest, APushForAReleasedSequenceIsDropped) {
  MemoryOrder order;
  order.step = StepId{1};
  PrefillChunk& chunk = order.prefill.emplace_back();
  chunk.sequence = kA;
  chunk.slots.push_back(0);
  service_->Apply(order);
  MemoryOrder release;
  release.step = StepId{2};
  release.released.push_back(kA);
  service_->Apply(release);
  EXPECT_EQ(service_->Push(Pack(MessageKind::kPush, 1, {{Random(kKv)}, {Random(kKv)}})).code(),
            StatusCode::kNotFound);
  EXPECT_EQ(service_->stats().used_tokens, 0);
  EXPECT_EQ(service_->stats().num_sequences, 0);
}

}  // namespace attention_service_test
}  // namespace lamina
