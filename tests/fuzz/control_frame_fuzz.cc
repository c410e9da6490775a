// Feeds foreign bytes to the control channel's frame decoder in pieces. Whatever comes, the frames
// must be the same as when it comes at once, a broken stream must stay broken, and every frame that
// was returned must encode to the bytes that it came from.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "transport/control_frame.h"

namespace {

struct Decoded {
  std::string frames;  // encoded again
  lamina::Status end;
};

Decoded Decode(std::string_view bytes, size_t piece_bytes) {
  lamina::ControlFrameDecoder decoder;
  Decoded result;
  do {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    bytes.remove_prefix(piece.size());
    decoder.Append(piece);
    while (true) {
      auto frame = decoder.Next();
      result.end = frame.status();
      if (!frame.ok()) break;
      const auto header =
          lamina::EncodeControlHeader(frame->type, static_cast<uint32_t>(frame->payload.size()));
      result.frames.append(header.data(), header.size()).append(frame->payload);
    }
    if (result.end.code() == lamina::StatusCode::kTryAgain && decoder.missing_bytes() == 0)
      std::abort();
  } while (!bytes.empty());
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t piece_bytes = data[0] + size_t{1};
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Decoded whole = Decode(bytes, bytes.size() + 1);
  const Decoded pieces = Decode(bytes, piece_bytes);
  if (whole.frames != pieces.frames || whole.end.ToString() != pieces.end.ToString()) std::abort();
  if (bytes.substr(0, whole.frames.size()) != whole.frames) std::abort();
  return 0;
}
