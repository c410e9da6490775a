#include "tests/support/letters_tokenizer.h"

#include <nlohmann/json.hpp>

#include "text/json_tokenizer.h"

namespace lamina::testing {

using nlohmann::json;

std::unique_ptr<Tokenizer> LettersTokenizer(const std::vector<std::string>& special) {
  json file = json::parse(R"({
    "version": "1.0", "normalizer": null, "post_processor": null, "added_tokens": [],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                      "use_regex": false},
    "decoder": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": false},
    "model": {"type": "BPE", "dropout": null, "unk_token": null,
              "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
              "byte_fallback": false, "ignore_merges": false, "vocab": {}, "merges": []}})");
  int id = 0;
  for (char letter = 'a'; letter <= 'z'; ++letter)
    file["model"]["vocab"][std::string(1, letter)] = id++;
  for (const std::string& text : special)
    file["added_tokens"].push_back({{"id", id++},
                                    {"content", text},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}});
  json config = json::object();
  if (!special.empty() && special.front() == "<s>") {
    config["bos_token"] = "<s>";
    file["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [26], "tokens": ["<s>"]}}})");
  }
  return ParseJsonTokenizer(file, config, "letters").value();
}

}  // namespace lamina::testing
