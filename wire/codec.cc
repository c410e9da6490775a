#include "wire/codec.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "wire/codec_fields.h"
#include "wire/engine_fields.h"

namespace lamina {
namespace codec {

template <typename Message>
inline constexpr auto kListOf = FieldsOf(static_cast<const Message*>(nullptr));
template <typename Message>
using ProtoOf = typename decltype(kListOf<Message>)::Proto;

// One field of a message. It is part of a type, and so a constant, because calls through a pointer
// to an accessor are inlined only then. Else messages of a step took 6 to 30 % longer.
template <typename Message, size_t I>
struct Nth {
  static constexpr auto field = std::get<I>(kListOf<Message>.fields);
};

// Calls `visit` with the Nth of every field of the message.
template <typename Message, typename Visit>
void ForEachField(Visit visit) {
  const auto visit_all = [&]<size_t... I>(std::index_sequence<I...>) {
    (visit(Nth<Message, I>{}), ...);
  };
  visit_all(std::make_index_sequence<kListOf<Message>.kSize>{});
}

template <typename P>
concept Protobuf = std::derived_from<P, google::protobuf::Message>;

template <typename T>
concept IsId = requires(T id) {
  T{id.value};
};
template <typename T>
concept IsDuration = requires(T duration) {
  T{duration.count()};
};

// The memory of one protobuf on its way from or to bytes. What a decode step's messages need fits
// into the block on the stack, so that nothing is allocated for them.
class Scratch {
 public:
  Scratch() : arena_(block_.data(), block_.size()) {}

  template <Protobuf P>
  P& Make() {
    return *google::protobuf::Arena::CreateMessage<P>(&arena_);
  }

 private:
  alignas(std::max_align_t) std::array<char, 8192> block_;
  google::protobuf::Arena arena_;
};

// Fills in a protobuf.
class Writer {
 public:
  template <typename M, Protobuf P>
  static void Write(const M& message, P& proto) {
    ForEachField<M>([&](auto nth) {
      constexpr auto field = nth.field;
      const auto& value = message.*field.member;
      if constexpr (requires { field.has; }) {
        if (const auto* present = Present(value)) Put<field.put>(*present, proto);
      } else if constexpr (requires { field.put; }) {
        Put<field.put>(value, proto);
      } else {
        Write(value, proto);
      }
    });
  }

 private:
  // Null if an optional field is absent.
  template <typename V>
  static const V* Present(const std::optional<V>& value) {
    return value ? &*value : nullptr;
  }
  template <typename V>
  static const V* Present(const V& value) {
    return value == V{} ? nullptr : &value;
  }

  template <auto put, typename V, typename P>
  static void Put(const V& value, P& proto) {
    if constexpr (std::invocable<decltype(put), P&>) {
      Write(value, *(proto.*put)());
    } else {
      (proto.*put)(Number(value));
    }
  }

  // The two members that are Inner without being messages.
  template <typename P>
  static void Write(const Status& status, P& proto) {
    proto.set_status(static_cast<uint32_t>(status.code()));
    proto.set_message(status.message());
  }
  static void Write(const std::vector<StepState::Asked>& asked, control::StepState& proto) {
    for (const StepState::Asked& one : asked) {
      proto.add_asked(one.node.value);
      proto.add_posted_ns(one.posted_ns);
    }
  }

  static void Write(const std::string& text, std::string& field) { field = text; }
  static void Write(const StepTimes& times, google::protobuf::RepeatedField<int64_t>& field) {
    field.Add(times.ns.begin(), times.ns.end());
  }

  template <typename V, typename N>
  static void Write(const std::vector<V>& values, google::protobuf::RepeatedField<N>& field) {
    if constexpr (std::is_arithmetic_v<V>) {
      field.Add(values.begin(), values.end());
    } else {
      field.Reserve(static_cast<int>(values.size()));
      for (const V& value : values) field.AddAlreadyReserved(Number(value));
    }
  }

  template <typename M, typename P>
  static void Write(const std::vector<M>& messages, google::protobuf::RepeatedPtrField<P>& field) {
    for (const M& message : messages) Write(message, *field.Add());
  }

  // A value of an enumeration that control.proto does not have becomes its first one.
  template <typename V>
  static auto Number(const V& value) {
    if constexpr (std::is_enum_v<V>) {
      static constexpr auto values = ValuesOf(V{});
      const auto found =
          std::ranges::find(values, value, [](const auto& pair) { return pair.first; });
      return found == values.end() ? decltype(found->second){} : found->second;
    } else if constexpr (IsId<V>) {
      return value.value;
    } else if constexpr (IsDuration<V>) {
      return value.count();
    } else {
      return value;
    }
  }
};

// Fills in a message. The message is good for nothing if `status` is not ok in the end: what has an
// unknown value is left as it was, and the rest is read.
class Reader {
 public:
  template <Protobuf P, typename M>
  void Read(const P& proto, M& message) {
    ForEachField<M>([&](auto nth) {
      constexpr auto field = nth.field;
      auto& value = message.*field.member;
      if constexpr (requires { field.has; }) {
        if ((proto.*field.has)()) Take(field.name, (proto.*field.get)(), Place(value));
      } else if constexpr (requires { field.get; }) {
        Take(field.name, (proto.*field.get)(), value);
      } else {
        Read(proto, value);
      }
    });
  }

  // kCorrupt, because of the first unknown value.
  const Status& status() const { return status_; }

 private:
  // Where the value of an optional field goes that is not absent.
  template <typename V>
  static V& Place(std::optional<V>& value) {
    return value.emplace();
  }
  template <typename V>
  static V& Place(V& value) {
    return value;
  }

  // The two members that are Inner without being messages.
  template <typename P>
  void Read(const P& proto, Status& status) {
    if (proto.status() > static_cast<uint32_t>(StatusCode::kInternal))
      return Unknown("status", proto.status());
    status = Status(static_cast<StatusCode>(proto.status()), proto.message());
  }
  void Read(const control::StepState& proto, std::vector<StepState::Asked>& asked) {
    for (int i = 0; i < proto.asked_size() && i < proto.posted_ns_size(); ++i)
      asked.push_back({NodeId{proto.asked(i)}, proto.posted_ns(i)});
  }

  template <typename From, typename V>
  void Take(const char* name, const From& from, V& value) {
    if constexpr (std::is_enum_v<V>) {
      static constexpr auto values = ValuesOf(V{});
      const auto found =
          std::ranges::find_if(values, [&](const auto& pair) { return pair.second == from; });
      if (found == values.end()) return Unknown(name, from);
      value = found->first;
    } else if constexpr (Protobuf<From>) {
      Read(from, value);
    } else if constexpr (IsId<V> || IsDuration<V>) {
      value = V{from};
    } else {
      value = from;
    }
  }

  // Leaves out the kinds of work that this build does not know.
  void Take(const char*, const google::protobuf::RepeatedField<int64_t>& from, StepTimes& times) {
    const auto known = std::min<std::ptrdiff_t>(from.size(), std::ssize(times.ns));
    std::copy_n(from.begin(), known, times.ns.begin());
  }

  template <typename Repeated, typename V>
  void Take(const char* name, const Repeated& from, std::vector<V>& values) {
    if constexpr (std::is_arithmetic_v<V>) {
      values.assign(from.begin(), from.end());
    } else {
      values.reserve(static_cast<size_t>(from.size()));
      for (const auto& one : from) Take(name, one, values.emplace_back());
    }
  }

  void Unknown(const char* name, int64_t value) {
    if (status_.ok())
      status_ = Corrupt(std::string(name) + " has the unknown value " + std::to_string(value));
  }

  Status status_;
};

}  // namespace codec

template <typename Message>
std::string Encode(const Message& message) {
  codec::Scratch scratch;
  auto& proto = scratch.Make<codec::ProtoOf<Message>>();
  codec::Writer::Write(message, proto);
  return proto.SerializeAsString();
}

template <typename Message>
Result<Message> Decode(std::string_view bytes) {
  codec::Scratch scratch;
  auto& proto = scratch.Make<codec::ProtoOf<Message>>();
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Corrupt("its bytes are no " + proto.GetTypeName());
  Message message;
  codec::Reader reader;
  reader.Read(proto, message);
  if (!reader.status().ok()) return reader.status();
  return message;
}

std::optional<size_t> EncodeInto(const StepState& state, std::span<std::byte> room) {
  codec::Scratch scratch;
  auto& proto = scratch.Make<control::StepState>();
  codec::Writer::Write(state, proto);
  const size_t bytes = proto.ByteSizeLong();
  if (bytes > room.size()) return std::nullopt;
  proto.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(room.data()));
  return bytes;
}

template std::string Encode(const ConfigureMemory&);
template std::string Encode(const ConfigureCompute&);
template std::string Encode(const ConnectCompute&);
template std::string Encode(const LosePeer&);
template std::string Encode(const PeerState&);
template std::string Encode(const Configured&);
template std::string Encode(const WeightsProgress&);
template std::string Encode(const StatsRequest&);
template std::string Encode(const MemoryStats&);
template std::string Encode(const LayersTold&);
template std::string Encode(const TraceQuery&);
template std::string Encode(const TraceAnswer&);
template std::string Encode(const MemoryOrder&);
template std::string Encode(const ComputeOrder&);
template std::string Encode(const StepResult&);
template std::string Encode(const StepState&);
template std::string Encode(const OpenFront&);
template std::string Encode(const FrontOpened&);
template std::string Encode(const SubmitRequest&);
template std::string Encode(const RequestSubmitted&);
template std::string Encode(const AbortRequest&);
template std::string Encode(const StopContinuation&);
template std::string Encode(const RequestEvents&);
template std::string Encode(const EngineStatus&);
template Result<ConfigureMemory> Decode(std::string_view);
template Result<ConfigureCompute> Decode(std::string_view);
template Result<ConnectCompute> Decode(std::string_view);
template Result<LosePeer> Decode(std::string_view);
template Result<PeerState> Decode(std::string_view);
template Result<Configured> Decode(std::string_view);
template Result<WeightsProgress> Decode(std::string_view);
template Result<StatsRequest> Decode(std::string_view);
template Result<MemoryStats> Decode(std::string_view);
template Result<LayersTold> Decode(std::string_view);
template Result<TraceQuery> Decode(std::string_view);
template Result<TraceAnswer> Decode(std::string_view);
template Result<MemoryOrder> Decode(std::string_view);
template Result<ComputeOrder> Decode(std::string_view);
template Result<StepResult> Decode(std::string_view);
template Result<StepState> Decode(std::string_view);
template Result<OpenFront> Decode(std::string_view);
template Result<FrontOpened> Decode(std::string_view);
template Result<SubmitRequest> Decode(std::string_view);
template Result<RequestSubmitted> Decode(std::string_view);
template Result<AbortRequest> Decode(std::string_view);
template Result<StopContinuation> Decode(std::string_view);
template Result<RequestEvents> Decode(std::string_view);
template Result<EngineStatus> Decode(std::string_view);

}  // namespace lamina
