// The file format of SentencePiece models: a protobuf message, of which this reads what tokenising
// needs.
//
// The file is read here, without libsentencepiece: that library exports a private copy of an old
// protobuf runtime under protobuf's own names, and a process that links both mixes them up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace lamina {

struct SentencePieceModel {
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kUnused = 5,
    kByte = 6
  };
  struct Piece {
    std::string text;  // spaces are written as U+2581
    float score = 0;
    Type type = Type::kNormal;
  };

  std::vector<Piece> pieces;  // by token id; never empty texts, no text twice
  TokenId unk_id = 0;
  TokenId bos_id = 1;  // -1: none
  TokenId eos_id = 2;
  // Unknown characters become byte pieces, all 256 of which exist.
  bool byte_fallback = false;
  std::vector<TokenId> byte_ids;               // [256] if byte_fallback
  std::string unk_surface = " \xE2\x81\x87 ";  // what an unknown token is shown as
  bool add_dummy_prefix = true;                // a space in front of the text
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;  // spaces become U+2581

  // kInvalidArgument: not such a file, or damaged; kUnimplemented: a kind of model that is not
  // supported (only BPE without normalisation rules is, which LLaMA and its relatives use).
  static Result<SentencePieceModel> Parse(std::string_view bytes);
  // Finds unk_id and byte_ids in the pieces of a model that comes from elsewhere, and checks it as
  // Parse does.
  Status Check();
};

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

}  // namespace lamina
