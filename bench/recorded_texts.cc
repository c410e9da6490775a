#include "bench/recorded_texts.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/json_file.h"

namespace lamina {
namespace {

bool ReadHex(const std::string& digits, std::string& bytes) {
  if (digits.size() % 2 != 0) return false;
  for (size_t i = 0; i < digits.size(); i += 2) {
    unsigned char value = 0;
    const char* end = digits.data() + i + 2;
    const auto read = std::from_chars(digits.data() + i, end, value, 16);
    if (read.ec != std::errc() || read.ptr != end) return false;
    bytes += static_cast<char>(value);
  }
  return true;
}

}  // namespace

Result<RecordedTexts> ReadRecordedTexts(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const nlohmann::json file, ReadJsonFile(path));
  RecordedTexts recorded;
  try {
    std::vector<std::string> tokens;
    for (const auto& digits : file.at("tokens")) {
      if (!ReadHex(digits.get<std::string>(), tokens.emplace_back()))
        return InvalidArgument(path + ": tokens[" + std::to_string(tokens.size() - 1) +
                               "] is not bytes in pairs of hexadecimal digits");
    }
    recorded.vocabulary = std::make_shared<const Vocabulary>(std::move(tokens));
    for (const auto& entry : file.at("cases")) {
      GrammarCase& test = recorded.cases.emplace_back();
      test.name = entry.at("name").get<std::string>();
      test.constraint = {
          .kind = ConstraintKind::kJsonSchema,
          .schema = nlohmann::ordered_json::parse(entry.at("schema").get<std::string>())};
      test.texts = entry.at("texts").get<std::vector<std::vector<TokenId>>>();
      for (const std::vector<TokenId>& text : test.texts) {
        for (const TokenId token : text) {
          if (token < 0 || token >= recorded.vocabulary->size())
            return InvalidArgument(path + ": " + test.name + " has a text with token " +
                                   std::to_string(token) + ", which is none of \"tokens\"");
        }
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return InvalidArgument(path + ": expected {\"tokens\", \"cases\": [{\"name\", \"schema\", " +
                           "\"texts\"}]} as scripts/compare_masks.py writes it: " + error.what());
  }
  return recorded;
}

}  // namespace lamina
