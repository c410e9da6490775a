// tokenizer.model is foreign bytes: whatever they are, parsing does not crash, and what is accepted
// can tokenise and gives ids of its vocabulary.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/bpe_encoder.h"
#include "text/sentencepiece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = lamina::SentencePieceModel::Parse({reinterpret_cast<const char*>(data), size});
  if (!model.ok()) {
    if (model.status().message().empty()) std::abort();
    return 0;
  }
  const lamina::BpeEncoder encoder(model.value());
  std::vector<lamina::TokenId> ids;
  if (!encoder.Encode("Once upon a  time \xE2\x98\x83 <s> aaaa ", lamina::TokenizerTime(0), ids)
           .ok())
    std::abort();
  for (const lamina::TokenId id : ids) {
    if (id < 0 || static_cast<size_t>(id) >= model->pieces.size()) std::abort();
  }
  return 0;
}
