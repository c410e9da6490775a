// Every field that the openai package and vLLM have in requests is in the table of docs/api.md, and
// becomes here what the table says: no field that changes the answer is ignored.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "api/requests.h"
#include "api/vector_requests.h"
#include "tests/support/paths.h"

namespace lamina {
namespace {

using nlohmann::json;

// What the table says of a field, by path.
using Row = std::map<std::string, std::string>;

std::string Trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(' '));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

// Rows "| `field` | completions | chats | embeddings | remark |" of the table under "## Field by
// field".
std::map<std::string, Row> Documented() {
  std::ifstream file(SourcePath("/docs/api.md"));
  std::map<std::string, Row> rows;
  bool in_section = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) in_section = line == "## Field by field";
    if (!in_section || !line.starts_with("| `")) continue;
    std::istringstream cells(line);
    std::string empty, names, completions, chat, embeddings;
    for (std::string* cell : {&empty, &names, &completions, &chat, &embeddings})
      std::getline(cells, *cell, '|');
    std::istringstream list(names);
    for (std::string name; std::getline(list, name, '`');) {
      if (name.find_first_of(" ,") != std::string::npos || name.empty()) continue;
      const Row row = {{"completions", Trimmed(completions)},
                       {"chat", Trimmed(chat)},
                       {"embeddings", Trimmed(embeddings)}};
      EXPECT_TRUE(rows.emplace(name, row).second) << name << " is there twice";
    }
  }
  return rows;
}

// A value that would change the answer where the field is supported.
json ValueOf(const std::string& field, const std::string& path) {
  static const json values = json::parse(R"({
    "add_generation_prompt": false, "add_special_tokens": false, "allowed_token_ids": [5],
    "audio": {"voice": "alloy", "format": "wav"}, "bad_words": ["x"], "best_of": 2,
    "cache_salt": "salt", "chat_template": "{{ messages }}", "chat_template_kwargs": {"x": 1},
    "continue_final_message": true, "dimensions": 2, "documents": [{"text": "x"}],
    "echo": true, "embed_dtype": "float16", "encoding_format": "base64", "endianness": "big",
    "frequency_penalty": 0.5, "function_call": {"name": "f"}, "functions": [{"name": "f"}],
    "ignore_eos": true, "include_reasoning": false, "include_stop_str_in_output": true,
    "input": "x",
    "kv_transfer_params": {"x": 1}, "length_penalty": 0.5, "logit_bias": {"5": 1},
    "logprobs": 1, "max_completion_tokens": 5, "max_tokens": 5,
    "media_io_kwargs": {"video": {"num_frames": 1}},
    "messages": [{"role": "user", "content": "x"}], "metadata": {"k": "v"}, "min_p": 0.1,
    "min_tokens": 1, "mm_processor_kwargs": {"x": 1}, "modalities": ["text", "audio"],
    "model": "m", "moderation": {"model": "m"}, "n": 2, "parallel_tool_calls": false,
    "prediction": {"type": "content", "content": "x"}, "presence_penalty": 0.5, "priority": 1,
    "prompt": "x", "prompt_cache_key": "k", "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h", "prompt_embeds": "AAAA", "prompt_logprobs": 1,
    "reasoning_effort": "low", "repetition_detection": {"max_pattern_size": 3},
    "repetition_penalty": 1.5, "request_id": "mine",
    "response_format": {"type": "json_object"}, "return_token_ids": true,
    "return_tokens_as_token_ids": true, "safety_identifier": "u", "seed": 5,
    "service_tier": "flex", "skip_special_tokens": false,
    "spaces_between_special_tokens": false, "stop": "x", "stop_token_ids": [5], "store": true,
    "stream": true, "stream_options": {"include_usage": true},
    "structured_outputs": {"regex": "a"}, "suffix": "x", "temperature": 0.5,
    "thinking_token_budget": 5, "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "f"}}], "top_k": 5,
    "top_logprobs": 2, "top_p": 0.5, "truncate_prompt_tokens": 5, "truncation_side": "left", "use_activation": false,
    "use_beam_search": true,
    "user": "u", "verbosity": "low", "vllm_xargs": {"x": 1}, "web_search_options": {}})");
  if (path == "chat" && field == "logprobs") return true;
  return values.at(field);
}

class Fields : public ::testing::TestWithParam<const char*> {};

TEST_P(Fields, BecomeWhatTheTableSays) {
  const std::string path = GetParam();
  const bool chat = path == "chat";
  const std::map<std::string, Row> documented = Documented();
  std::ifstream file(SourcePath("/tests/api/request_fields.json"));
  const json lists = json::parse(file).at(GetParam());
  for (const char* origin : {"openai", "vllm"}) {
    ASSERT_GE(lists.at(origin).size(), path == "embeddings" ? 5u : 16u);
    for (const std::string field : lists.at(origin)) {
      SCOPED_TRACE(field);
      const auto row = documented.find(field);
      ASSERT_NE(row, documented.end()) << "docs/api.md has no row for it";
      const std::string& outcome = row->second.at(path);
      json body = {{"n", 2}};  // beam search needs several
      if (field == "use_beam_search") body["n"] = 2;
      if (field == "top_logprobs") body["logprobs"] = true;
      if (field == "stream_options") body["stream"] = true;
      if (field == "tool_choice") body["tools"] = ValueOf("tools", path);
      if (chat) body["messages"] = ValueOf("messages", path);
      if (path == "completions") body["prompt"] = "x";
      if (path == "embeddings") body = {{"input", "x"}};
      body[field] = ValueOf(field, path);
      const RequestRules rules{1024, {}};
      std::vector<std::string> unknown;
      std::optional<ApiError> error;
      CompletionRequest completion;
      ChatRequest conversation;
      VectorRequest vectors;
      if (path == "embeddings")
        error = ParseVectors(body, VectorForm::Kind::kEmbeddings, {1024, 8}, vectors, unknown);
      else
        error = chat ? ParseChat(body, rules, conversation, unknown)
                     : ParseCompletion(body, rules, completion, unknown);
      EXPECT_THAT(unknown, ::testing::IsEmpty()) << "it is ignored as if it were not known";
      if (outcome == "works" || outcome == "no bearing") {
        EXPECT_FALSE(error) << error->message;
      } else {
        ASSERT_EQ(outcome, "400");
        ASSERT_TRUE(error) << "the table says that it is refused";
        EXPECT_EQ(error->http_status, 400);
        EXPECT_EQ(error->param, field);
        EXPECT_THAT(error->message, ::testing::HasSubstr("'" + field + "'"));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Requests, Fields, ::testing::Values("completions", "chat", "embeddings"));

TEST(FieldsTable, HasNoFieldThatNoServerKnows) {
  std::ifstream file(SourcePath("/tests/api/request_fields.json"));
  const json lists = json::parse(file);
  std::set<std::string> known;
  for (const char* path : {"completions", "chat", "embeddings"}) {
    for (const char* origin : {"openai", "vllm"})
      for (const std::string field : lists.at(path).at(origin)) known.insert(field);
  }
  for (const auto& [name, row] : Documented()) EXPECT_TRUE(known.contains(name)) << name;
}

}  // namespace
}  // namespace lamina
