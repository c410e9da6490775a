// Control messages as bytes. This alone knows that they are protobufs (control.proto).
//
//   connection.Send(FrameType(MessageType::kStepResult), Encode(result));
//   LAMINA_ASSIGN_OR_RETURN(const StepResult result, Decode<StepResult>(frame.payload));
//
// Messages are the structs of step_messages.h, session_messages.h and engine_messages.h that a
// MessageType or another message of theirs sends as a whole: MemoryOrder, ComputeOrder, StepResult,
// StepState, ConfigureMemory, ConfigureCompute, ConnectCompute, LosePeer, PeerState, Configured,
// WeightsProgress, StatsRequest, MemoryStats, LayersTold, TraceQuery, TraceAnswer, OpenFront,
// FrontOpened, SubmitRequest, RequestSubmitted, AbortRequest, StopContinuation, RequestEvents,
// EngineStatus. Thread: any.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "wire/engine_messages.h"
#include "wire/session_messages.h"
#include "wire/step_messages.h"

namespace lamina {

template <typename Message>
std::string Encode(const Message& message);

// kCorrupt, with the cause, if the bytes cannot be parsed or an enumeration has an unknown value.
// Nothing else of the message is checked.
template <typename Message>
Result<Message> Decode(std::string_view bytes);

// Writes the bytes to the beginning of `room` and returns how many they are; nullopt if there is
// not enough room, and then nothing was written.
std::optional<size_t> EncodeInto(const StepState& state, std::span<std::byte> room);

}  // namespace lamina
