#include "wire/codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "wire/control.pb.h"

namespace lamina {
namespace {

using google::protobuf::FieldDescriptor;
using ::testing::HasSubstr;

// Gives every field of a message a value of its own, whatever fields the message has.
class Filler {
 public:
  void Fill(google::protobuf::Message& message) {
    const google::protobuf::Descriptor& descriptor = *message.GetDescriptor();
    for (int i = 0; i < descriptor.field_count(); ++i) {
      const FieldDescriptor& field = *descriptor.field(i);
      // One time for each kind of work that is timed, and some of everything else.
      const int count = field.name() == "ns" ? static_cast<int>(kNumStepWorks) : 3;
      for (int k = 0; k < (field.is_repeated() ? count : 1); ++k) Set(message, field);
    }
  }

 private:
  // Calls the setter, or the adder of a repeated field.
  template <typename Value>
  using Setter = void (google::protobuf::Reflection::*)(google::protobuf::Message*,
                                                        const FieldDescriptor*, Value) const;
  template <typename Value>
  static void Put(google::protobuf::Message& message, const FieldDescriptor& field,
                  Setter<Value> set, Setter<Value> add, Value value) {
    (message.GetReflection()->*(field.is_repeated() ? add : set))(&message, &field,
                                                                  std::move(value));
  }

  void Set(google::protobuf::Message& message, const FieldDescriptor& field) {
    using R = google::protobuf::Reflection;
    const R& reflection = *message.GetReflection();
    const int number = ++number_;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return Put<int32_t>(message, field, &R::SetInt32, &R::AddInt32, number);
      case FieldDescriptor::CPPTYPE_INT64:
        return Put<int64_t>(message, field, &R::SetInt64, &R::AddInt64, number);
      case FieldDescriptor::CPPTYPE_UINT32:
        return Put<uint32_t>(message, field, &R::SetUInt32, &R::AddUInt32,
                             field.name() == "status" ? 3 : static_cast<uint32_t>(number));
      case FieldDescriptor::CPPTYPE_UINT64:
        return Put<uint64_t>(message, field, &R::SetUInt64, &R::AddUInt64,
                             static_cast<uint64_t>(number) << 40);
      case FieldDescriptor::CPPTYPE_FLOAT:
        return Put<float>(message, field, &R::SetFloat, &R::AddFloat,
                          0.5f * static_cast<float>(number));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Put<double>(message, field, &R::SetDouble, &R::AddDouble, 0.5 * number);
      case FieldDescriptor::CPPTYPE_BOOL:
        return Put<bool>(message, field, &R::SetBool, &R::AddBool, true);
      case FieldDescriptor::CPPTYPE_ENUM:
        return Put<int>(message, field, &R::SetEnumValue, &R::AddEnumValue,
                        field.enum_type()->value(field.enum_type()->value_count() - 1)->number());
      case FieldDescriptor::CPPTYPE_STRING:
        return Put<std::string>(message, field, &R::SetString, &R::AddString,
                                "text " + std::to_string(number));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(field.is_repeated() ? *reflection.AddMessage(&message, &field)
                                        : *reflection.MutableMessage(&message, &field));
    }
  }

  int number_ = 0;
};

template <typename P, typename M>
struct Pair {
  using Proto = P;
  using Message = M;
};

template <typename Pair>
class Codec : public ::testing::Test {};

using Messages = ::testing::Types<
    Pair<control::MemoryOrder, MemoryOrder>, Pair<control::ComputeOrder, ComputeOrder>,
    Pair<control::StepResult, StepResult>, Pair<control::StepState, StepState>,
    Pair<control::ConfigureMemory, ConfigureMemory>,
    Pair<control::ConfigureCompute, ConfigureCompute>,
    Pair<control::ConnectCompute, ConnectCompute>, Pair<control::LosePeer, LosePeer>,
    Pair<control::PeerState, PeerState>, Pair<control::Configured, Configured>,
    Pair<control::LoadProgress, WeightsProgress>, Pair<control::StatsRequest, StatsRequest>,
    Pair<control::Stats, MemoryStats>, Pair<control::LayersTold, LayersTold>,
    Pair<control::TraceRequest, TraceQuery>, Pair<control::Trace, TraceAnswer>,
    Pair<control::OpenFront, OpenFront>, Pair<control::FrontOpened, FrontOpened>,
    Pair<control::SubmitRequest, SubmitRequest>, Pair<control::RequestSubmitted, RequestSubmitted>,
    Pair<control::AbortRequest, AbortRequest>, Pair<control::StopContinuation, StopContinuation>,
    Pair<control::RequestEvents, RequestEvents>, Pair<control::EngineStatus, EngineStatus>>;
TYPED_TEST_SUITE(Codec, Messages);

// A field that is missing in the codec's list would be missing at the end.
TYPED_TEST(Codec, EveryFieldComesThrough) {
  typename TypeParam::Proto sent, received;
  Filler().Fill(sent);
  const std::string bytes = sent.SerializeAsString();
  const auto message = Decode<typename TypeParam::Message>(bytes);
  ASSERT_TRUE(message.ok()) << message.status();
  const std::string encoded = Encode(*message);
  ASSERT_TRUE(received.ParseFromString(encoded));
  google::protobuf::util::MessageDifferencer differencer;
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(sent, received)) << differences;
  EXPECT_EQ(encoded, bytes);
}

TYPED_TEST(Codec, DefaultsComeThrough) {
  const auto encoded = Encode(typename TypeParam::Message{});
  const auto message = Decode<typename TypeParam::Message>(encoded);
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(Encode(*message), encoded);
}

TYPED_TEST(Codec, BytesThatEndTooEarlyAreCorrupt) {
  typename TypeParam::Proto sent;
  Filler().Fill(sent);
  std::string bytes = sent.SerializeAsString();
  bytes.pop_back();
  const auto message = Decode<typename TypeParam::Message>(bytes);
  EXPECT_EQ(message.status().code(), StatusCode::kCorrupt);
  EXPECT_THAT(message.status().message(), HasSubstr("its bytes are no lamina.control."));
}

template <typename Message, typename Proto>
void ExpectCorrupt(const Proto& proto, const std::string& what) {
  const Result<Message> message = Decode<Message>(proto.SerializeAsString());
  EXPECT_EQ(message.status().code(), StatusCode::kCorrupt) << what;
  EXPECT_THAT(message.status().message(), HasSubstr(what));
}

TEST(Codec, UnknownValuesAreCorrupt) {
  control::ConfigureMemory memory;
  memory.mutable_attention()->set_kv_dtype(static_cast<control::KvDType>(9));
  ExpectCorrupt<ConfigureMemory>(memory, "kv_dtype has the unknown value 9");
  memory.Clear();
  memory.mutable_attention()->set_wire_dtype(static_cast<control::KvDType>(-1));
  ExpectCorrupt<ConfigureMemory>(memory, "wire_dtype has the unknown value -1");
  memory.Clear();
  memory.add_fabrics(control::FABRIC_UNSPECIFIED);
  ExpectCorrupt<ConfigureMemory>(memory, "fabrics has the unknown value 0");
  memory.Clear();
  memory.set_payload_checksum(static_cast<control::Switch>(3));
  ExpectCorrupt<ConfigureMemory>(memory, "payload_checksum has the unknown value 3");
  memory.Clear();
  memory.set_polling(static_cast<control::Polling>(3));
  ExpectCorrupt<ConfigureMemory>(memory, "polling has the unknown value 3");
  control::ConfigureCompute compute;
  compute.set_load_format(static_cast<control::LoadFormat>(3));
  ExpectCorrupt<ConfigureCompute>(compute, "load_format has the unknown value 3");
  control::Configured configured;
  configured.set_status(99);
  ExpectCorrupt<Configured>(configured, "status has the unknown value 99");
  control::StepResult result;
  result.add_failed()->set_status(10);
  ExpectCorrupt<StepResult>(result, "status has the unknown value 10");
  result.Clear();
  result.add_failed()->set_cause(static_cast<control::FailureCause>(2));
  ExpectCorrupt<StepResult>(result, "cause has the unknown value 2");
}

TEST(Codec, EveryValueOfAnEnumerationIsItself) {
  ConfigureCompute sent;
  const auto received = [&] { return Decode<ConfigureCompute>(Encode(sent)).value(); };
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF16, DType::kF8, DType::kI8Scaled, DType::kF8Scaled}) {
    sent.attention.kv_dtype = dtype;
    EXPECT_EQ(received().attention.kv_dtype, dtype);
  }
  for (const Switch value : {Switch::kAuto, Switch::kOn, Switch::kOff}) {
    sent.payload_checksum = value;
    EXPECT_EQ(received().payload_checksum, value);
  }
  for (const PollingMode mode : {PollingMode::kAuto, PollingMode::kDevice, PollingMode::kHost}) {
    sent.polling = mode;
    EXPECT_EQ(received().polling, mode);
  }
  for (const LoadFormat format :
       {LoadFormat::kAuto, LoadFormat::kSafetensors, LoadFormat::kDummy}) {
    sent.load_format = format;
    EXPECT_EQ(received().load_format, format);
  }
  sent.fabrics = {TransportKind::kTcp, TransportKind::kShm, TransportKind::kUcx,
                  TransportKind::kVerbs};
  EXPECT_EQ(received().fabrics, sent.fabrics);
  StepResult result;
  result.failed.resize(1);
  for (const FailureCause cause : {FailureCause::kRequest, FailureCause::kKvLost}) {
    result.failed[0].cause = cause;
    EXPECT_EQ(Decode<StepResult>(Encode(result)).value().failed.at(0).cause, cause);
  }
}

TEST(Codec, TimesOfKindsOfWorkThatAreUnknownAreLeftOut) {
  control::StepResult sent;
  control::NodeTimes& times = *sent.add_times();
  for (size_t i = 0; i < kNumStepWorks + 2; ++i) times.add_ns(static_cast<int64_t>(i) + 1);
  const Result<StepResult> result = Decode<StepResult>(sent.SerializeAsString());
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->times[0].times.ns.back(), static_cast<int64_t>(kNumStepWorks));
}

TEST(Codec, AStateThatDoesNotFitIsNotWritten) {
  StepState state;
  state.clock = 7;
  state.so_far.emplace().failed.push_back({SequenceId{5}, TimedOut("late")});
  const std::string encoded = Encode(state);
  std::array<std::byte, 64> room{};
  ASSERT_LT(encoded.size(), room.size());
  EXPECT_EQ(EncodeInto(state, std::span(room).first(encoded.size() - 1)), std::nullopt);
  EXPECT_EQ(room[0], std::byte{0});
  ASSERT_EQ(EncodeInto(state, room), encoded.size());
  EXPECT_EQ(std::memcmp(room.data(), encoded.data(), encoded.size()), 0);
}

}  // namespace
}  // namespace lamina
