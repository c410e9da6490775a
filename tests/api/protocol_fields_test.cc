// Every field that the packages anthropic, openai (its Responses API) and ollama have in requests,
// and every one of llama.cpp's server, is one that was decided on: docs/api.md says what becomes of
// it, and it is known here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <sstream>

#include "api/protocols/llama_request.h"
#include "api/protocols/messages_request.h"
#include "api/protocols/ollama_request.h"
#include "api/protocols/responses_request.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

struct Protocol {
  const char* list;     // in protocol_fields.json
  const char* section;  // of docs/api.md
  Translate translate;
  const char* body;    // that is taken
  const char* within;  // where its fields stand
};

const Protocol kProtocols[] = {
    {"messages", "### Anthropic's messages", TranslateMessages,
     R"({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})", ""},
    {"count_tokens", "### Anthropic's messages", TranslateCountTokens,
     R"({"model": "m", "messages": [{"role": "user", "content": "x"}]})", ""},
    {"responses", "### OpenAI's responses", TranslateResponses, R"({"input": "x"})", ""},
    {"chat", "### Ollama's API", TranslateOllamaChat,
     R"({"model": "m", "messages": [{"role": "user", "content": "x"}]})", ""},
    {"generate", "### Ollama's API", TranslateOllamaGenerate, R"({"model": "m", "prompt": "x"})",
     ""},
    {"options", "### Ollama's API", TranslateOllamaChat,
     R"({"model": "m", "messages": [{"role": "user", "content": "x"}], "options": {}})", "options"},
    {"completion", "### llama.cpp's API", TranslateLlamaCompletion, R"({"prompt": "x"})", ""},
};

std::string Section(const std::string& title) {
  std::ifstream file(SourcePath("/docs/api.md"));
  std::string section;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) inside = line == title;
    if (inside) section += line + "\n";
  }
  return section;
}

// What is wrong with the body; "" if nothing is.
std::string ErrorOf(const Protocol& protocol, const json& body) {
  ServedModel model;
  model.name = "m";
  nlohmann::ordered_json ordered(body);
  Translation translation;
  const auto error = protocol.translate({body, ordered}, model, translation);
  return error ? error->message : "";
}

TEST(ProtocolFields, AreKnownAndDocumented) {
  std::ifstream file(SourcePath("/tests/api/protocol_fields.json"));
  const json lists = json::parse(file);
  for (const Protocol& protocol : kProtocols) {
    const std::string section = Section(protocol.section);
    const json taken = json::parse(protocol.body);
    EXPECT_EQ(ErrorOf(protocol, taken), "");
    ASSERT_GE(lists.at(protocol.list).size(), 10u);
    for (const std::string field : lists.at(protocol.list)) {
      SCOPED_TRACE(std::string(protocol.list) + ": " + field);
      json body = taken;
      json& place = *protocol.within == '\0' ? body : body[protocol.within];
      if (!place.contains(field)) place[field] = true;
      EXPECT_THAT(ErrorOf(protocol, body), Not(HasSubstr("not known")));
      EXPECT_TRUE(std::regex_search(section, std::regex("`" + field + "[`.: ]")))
          << "docs/api.md does not say what becomes of it";
    }
    json body = taken;
    json& place = *protocol.within == '\0' ? body : body[protocol.within];
    place["unheard_of"] = true;
    EXPECT_THAT(ErrorOf(protocol, body), HasSubstr("unheard_of' is not supported"));
  }
}

}  // namespace
}  // namespace lamina
