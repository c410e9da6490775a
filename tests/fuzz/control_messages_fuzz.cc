// Feeds foreign bytes to the decoders of control messages. What they accept must be the same
// message when it is encoded and decoded again.
#include <fuzzer/FuzzedDataProvider.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "wire/codec.h"

namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

template <typename Message>
void DecodeForeign(const std::string& bytes) {
  const auto message = lamina::Decode<Message>(bytes);
  if (!message.ok()) return Require(message.status().code() == lamina::StatusCode::kCorrupt);
  const std::string encoded = lamina::Encode(*message);
  const auto again = lamina::Decode<Message>(encoded);
  Require(again.ok() && lamina::Encode(*again) == encoded);
}

// A state is also written where there may be too little room.
void DecodeState(const std::string& bytes, size_t room_bytes) {
  DecodeForeign<lamina::StepState>(bytes);
  const auto state = lamina::Decode<lamina::StepState>(bytes);
  if (!state.ok()) return;
  const std::string encoded = lamina::Encode(*state);
  std::vector<std::byte> room(room_bytes);
  const auto written = lamina::EncodeInto(*state, room);
  Require(written.has_value() == (encoded.size() <= room_bytes));
  if (written)
    Require(*written == encoded.size() &&
            (encoded.empty() || std::memcmp(room.data(), encoded.data(), encoded.size()) == 0));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Decoder = void (*)(const std::string&);
  constexpr std::array<Decoder, 23> kDecoders = {
      DecodeForeign<lamina::MemoryOrder>,      DecodeForeign<lamina::ComputeOrder>,
      DecodeForeign<lamina::StepResult>,       DecodeForeign<lamina::ConfigureMemory>,
      DecodeForeign<lamina::ConfigureCompute>, DecodeForeign<lamina::ConnectCompute>,
      DecodeForeign<lamina::Configured>,       DecodeForeign<lamina::WeightsProgress>,
      DecodeForeign<lamina::StatsRequest>,     DecodeForeign<lamina::MemoryStats>,
      DecodeForeign<lamina::TraceQuery>,       DecodeForeign<lamina::TraceAnswer>,
      DecodeForeign<lamina::LosePeer>,         DecodeForeign<lamina::PeerState>,
      DecodeForeign<lamina::OpenFront>,        DecodeForeign<lamina::FrontOpened>,
      DecodeForeign<lamina::SubmitRequest>,    DecodeForeign<lamina::RequestSubmitted>,
      DecodeForeign<lamina::AbortRequest>,     DecodeForeign<lamina::StopContinuation>,
      DecodeForeign<lamina::RequestEvents>,    DecodeForeign<lamina::EngineStatus>,
      DecodeForeign<lamina::LayersTold>};
  FuzzedDataProvider provider(data, size);
  const auto which = provider.ConsumeIntegralInRange<size_t>(0, kDecoders.size());
  const auto room_bytes = provider.ConsumeIntegralInRange<size_t>(0, 4096);
  const std::string bytes = provider.ConsumeRemainingBytesAsString();
  if (which == kDecoders.size()) {
    DecodeState(bytes, room_bytes);
  } else {
    kDecoders[which](bytes);
  }
  return 0;
}
