// What both halves of the codec are made of; nothing else includes it.
#pragma once

#include <google/protobuf/arena.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace lamina {

// The memory of one protobuf on its way from or to bytes. What a decode step's messages need fits
// into the block on the stack, so that nothing is allocated for them.
class CodecScratch {
 public:
  CodecScratch() : arena_(block_.data(), block_.size()) {}

  template <typename Proto>
  Proto& Make() {
    return *google::protobuf::Arena::CreateMessage<Proto>(&arena_);
  }

 private:
  alignas(std::max_align_t) std::array<char, 8192> block_;
  google::protobuf::Arena arena_;
};

// `write` fills in the protobuf.
template <typename Proto, typename Write>
std::string EncodeAs(Write write) {
  CodecScratch scratch;
  Proto& proto = scratch.Make<Proto>();
  write(proto);
  return proto.SerializeAsString();
}

// `read` takes the protobuf and the message, and returns kCorrupt for a value that is unknown.
template <typename Proto, typename Message, typename Read>
Result<Message> DecodeAs(std::string_view bytes, Read read) {
  CodecScratch scratch;
  Proto& proto = scratch.Make<Proto>();
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return Corrupt("its bytes are no " + proto.GetTypeName());
  Message message;
  LAMINA_RETURN_IF_ERROR(read(proto, message));
  return message;
}

inline Status UnknownValue(std::string_view field, int64_t value) {
  return Corrupt(std::string(field) + " has the unknown value " + std::to_string(value));
}

inline Status ReadStatus(uint32_t code, const std::string& message, Status& status) {
  if (code > static_cast<uint32_t>(StatusCode::kInternal)) return UnknownValue("status", code);
  status = Status(static_cast<StatusCode>(code), message);
  return OkStatus();
}

template <typename Values, typename Repeated>
void WriteNumbers(const Values& values, Repeated& repeated) {
  repeated.Add(values.begin(), values.end());
}

template <typename Repeated, typename Value>
void ReadNumbers(const Repeated& repeated, std::vector<Value>& values) {
  values.assign(repeated.begin(), repeated.end());
}

// Appends to `messages` what `read` makes of each protobuf.
template <typename Repeated, typename Message, typename Read>
Status ReadMessages(const Repeated& repeated, std::vector<Message>& messages, Read read) {
  messages.reserve(static_cast<size_t>(repeated.size()));
  for (const auto& proto : repeated) LAMINA_RETURN_IF_ERROR(read(proto, messages.emplace_back()));
  return OkStatus();
}

}  // namespace lamina
