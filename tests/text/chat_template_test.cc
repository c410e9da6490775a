#include "text/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <random>

#include "tests/support/golden_prompts.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "text/template_ast.h"
#include "text/template_evaluator.h"
#include "text/time_budget.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

ChatInput Conversation(const nlohmann::json& messages, bool add_generation_prompt) {
  ChatInput input;
  input.add_generation_prompt = add_generation_prompt;
  std::tm fixed = {};  // as in chat_template_golden.py: noon of 26 July 2024
  fixed.tm_year = 124;
  fixed.tm_mon = 6;
  fixed.tm_mday = 26;
  fixed.tm_hour = 12;
  fixed.tm_isdst = -1;
  input.now = std::mktime(&fixed);
  for (nlohmann::json message : messages) {
    ChatMessage& out = input.messages.emplace_back();
    out.role = message["role"];
    if (!message["content"].is_null()) out.content = message["content"].get<std::string>();
    message.erase("role");
    message.erase("content");
    out.rest = nlohmann::ordered_json(message);
  }
  return input;
}

Result<std::string> Render(const std::string& source, const ChatInput& input) {
  LAMINA_ASSIGN_OR_RETURN(const auto parsed, ChatTemplate::Parse(source, {{"bos_token", "<s>"},
                                                                          {"eos_token", "</s>"}}));
  return parsed->Render(input);
}

Result<std::string> Render(const std::string& source) {
  return Render(source, Conversation({{{"role", "user"}, {"content", "hi"}}}, false));
}

TEST(ChatTemplate, AgreesWithJinja) {
  std::ifstream file(SourcePath("/tests/text/chat_template_golden.json"));
  const nlohmann::json all = nlohmann::json::parse(file);
  ASSERT_GT(all["cases"].size(), 300u);
  for (const nlohmann::json& golden : all["cases"]) {
    const std::string source = all["templates"][golden["template"].get<size_t>()];
    SCOPED_TRACE(source);
    ChatInput input = Conversation(all["conversations"][golden["conversation"].get<size_t>()],
                                   golden["add_generation_prompt"]);
    if (golden.contains("variables")) input.variables = nlohmann::ordered_json(golden["variables"]);
    const Result<std::string> text = Render(source, input);
    if (golden.contains("text")) {
      ASSERT_TRUE(text.ok()) << text.status();
      EXPECT_EQ(text.value(), golden["text"].get<std::string>());
    } else {
      EXPECT_FALSE(text.ok()) << "Jinja says: " << golden["error"]
                              << ", but here it is: " << text.value();
    }
  }
}

TEST(ChatTemplate, RefusalsReachTheClientAsTheyAre) {
  const Status status = Render("{{ raise_exception('only users, please') }}").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "only users, please");
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_THAT(Render("a\n\n{{ 1 + 'a' }}").status().message(), HasSubstr("line 3"));
  EXPECT_THAT(Render("a\n{% for x %}{% endfor %}").status().message(),
              HasSubstr("line 2: expected 'in'"));
  EXPECT_THAT(Render("{{ a.b }}").status().message(), HasSubstr("'a' is undefined"));
}

TEST(ChatTemplate, WhatIsNotSupportedIsNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% call f() %}{% endcall %}", "call"},
      {"{% filter upper %}a{% endfilter %}", "filter"},
      {"{% include 'x' %}", "include"},
      {"{{ 2 ** 3 }}", "**"},
      {"{{ 1 < 2 < 3 }}", "chained"},
      {"{{ messages|groupby('x') }}", "filter 'groupby'"},
      {"{{ 'a' is escaped }}", "escaped"},
      {"{{ lipsum() }}", "lipsum"},
      {"{{ [1]|tojson(sort_keys=true) }}", "sort_keys"},
      {"{{ 'a'.format(1) }}", "format"},
      {"{% for x in messages recursive %}{% endfor %}", "recursive"}};
  for (const auto& [source, name] : cases) {
    const Status status = Render(source).status();
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << source << ": " << status;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

TEST(ChatTemplate, WorkAndOutputAreBounded) {
  EXPECT_EQ(
      Render(
          "{% for a in range(100000) %}{% for b in range(100000) %}{{ b }}{% endfor %}{% endfor %}")
          .status()
          .code(),
      StatusCode::kOutOfSpace);
  std::string doubling =
      "{% set ns = namespace(s='0123456789') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s "
      "%}{% endfor %}";
  EXPECT_EQ(Render(doubling).status().code(), StatusCode::kOutOfSpace);
  EXPECT_EQ(Render("{{ range(1000000000) }}").status().code(), StatusCode::kOutOfSpace);
}

// Each would take gigabytes, hours or the stack if only evaluated expressions counted. `l` is
// doubled, `d` holds itself twice 100 times.
TEST(ChatTemplate, WorkAndMemoryAreBoundedByTheSizeOfValues) {
  const std::string doubled_list =
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}";
  const std::string shared =
      "{% set ns = namespace(d=[1], e=[1]) %}{% for i in range(100) %}{% set ns.d = [ns.d, ns.d] %}"
      "{% set ns.e = [ns.e, ns.e] %}{% endfor %}";
  const std::string text =
      "{% set ns = namespace(t='a') %}{% for i in range(24) %}{% set ns.t = ns.t + ns.t %}{% "
      "endfor %}";
  const std::string cases[] = {
      doubled_list,
      shared + "{{ ns.d == ns.e }}",
      shared + "{{ ns.d }}",
      shared + "{{ ns.d | tojson }}",
      shared + "{{ ns.d | string | length }}",
      shared + "{{ ns.d in [ns.e] }}",
      shared + "{{ ns.d ~ 'x' }}",
      shared + "{{ [ns.d] | join(', ') }}",
      shared + "{{ [ns.d] | map('upper') | list | length }}",
      shared + "{{ raise_exception(ns.d) }}",
      text +
          "{{ (ns.t + 'b') in ns.t + 'aaaaaaab' }}{% for i in range(100000) %}{{ ns.t[-1] }}{% "
          "endfor %}",
      text + "{{ ns.t.replace('a', ns.t) }}",
      text + "{{ ns.t.split('a') | length }}",
      text + "{{ ns.t | list | length }}",
      text + "{{ range(1000) | join(ns.t) | length }}",
      text + "{{ ns.t.strip(ns.t) }}",
      text + "{% for i in range(100000) %}{{ ns.t | length }}{{ ns.t == ns.t ~ '' }}{% endfor %}",
      text + "{{ range(100000) | map('replace', '1', ns.t) | list | length }}",
      "{% set l = range(100000) %}{% for i in range(100000) %}{% if -1 in l %}{% endif %}{% endfor "
      "%}",
      "{% set l = range(100000) %}{% for i in range(100000) %}{% set k = l | reverse %}{% endfor "
      "%}",
      "{% set ns = namespace(l=[]) %}{% for i in range(1000) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}{{ ns.l | tojson(indent=16) }}",
  };
  for (const std::string& source : cases) {
    const auto begin = std::chrono::steady_clock::now();
    const Result<std::string> rendered = Render(source);
    EXPECT_EQ(rendered.status().code(), StatusCode::kOutOfSpace)
        << source << ": " << rendered.status();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30)) << source;
  }
}

TEST(ChatTemplate, MapAppliesNoMap) {
  std::string source = "{{ 'a' | map(";
  for (int i = 0; i < 20'000; ++i) source += "'map', ";
  const Status status = Render(source + "'upper') | list }}").status();
  EXPECT_FALSE(status.ok());
  EXPECT_LT(status.message().size(), 1000u);
  EXPECT_EQ(Render("{{ ['a', 'b'] | map('upper') | join }}").value(), "AB");
}

TEST(ChatTemplate, NamesOfWhatIsNotThereAndTextAreCharged) {
  const std::string doubling =
      "{% set ns = namespace(s='xxxxxxxxxxxxxxxx', l=[]) %}{% for i in range(20) %}{% set ns.s = "
      "ns.s + ns.s %}{% endfor %}";
  const Result<std::string> names = Render(
      doubling +
      "{% for i in range(100) %}{% set ns.l = ns.l + [{}[ns.s]] %}{% endfor %}{{ ns.l | length }}");
  EXPECT_TRUE(names.ok() ? *names == "100" : names.status().code() == StatusCode::kOutOfSpace)
      << names.status();
  const std::string text(100'000, 'x');
  const Status kept =
      Render("{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set x %}" + text +
             "{% endset %}{% set ns.l = [x] %}{% endfor %}")
          .status();
  EXPECT_EQ(kept.code(), StatusCode::kOutOfSpace);
}

// With any time at all: its steps alone decide.
Status ErrorBySteps(const std::string& source, const chat::Dict& globals) {
  const Result<chat::Block> block = chat::Parse(source);
  EXPECT_TRUE(block.ok()) << block.status();
  chat::RenderLimits limits;
  limits.max_time = std::chrono::hours(1);
  return block.ok() ? chat::Render(*block, globals, limits).status() : block.status();
}

// "a0, a1, ..., a3999", or with something behind each.
std::string Names(int count, const std::string& behind = "") {
  std::string names;
  for (int i = 0; i < count; ++i) names += (i == 0 ? "a" : ", a") + std::to_string(i) + behind;
  return names;
}

// Each takes seconds, or hundreds of megabytes, in few expressions: by searching many keys, by
// copying them, letter by letter.
TEST(ChatTemplate, WhatIsSearchedAndCopiedIsCharged) {
  chat::Dict wide;
  for (int i = 0; i < 100'000; ++i) wide.Append("k" + std::to_string(i), chat::Value(int64_t{0}));
  chat::Dict globals;
  globals.Set("wide", chat::Value(std::move(wide)));
  globals.Set("spaces", chat::Value(std::string(8'000'000, ' ')));
  const auto repeated = [](int count, const std::string& what) {
    return "{% for i in range(" + std::to_string(count) + ") %}" + what + "{% endfor %}";
  };
  const std::string many_wide =
      "{% set ns = namespace(l=[wide]) %}" + repeated(12, "{% set ns.l = ns.l + ns.l %}");
  const std::string cases[] = {
      "{% set l = range(4000) %}" + repeated(60, "{% set " + Names(4000) + " = l %}"),
      "{% macro m(" + Names(4000) + ") %}{% endmacro %}" + repeated(60, "{{ m() }}"),
      "{% macro m(" + Names(1000) + ") %}{% endmacro %}" +
          repeated(100, "{{ m(" + Names(1000, "=1") + ") }}"),
      many_wide + "{{ ns.l | map(attribute='zzz') | list | length }}",
      many_wide + "{{ ns.l | selectattr('zzz.y') | list | length }}",
      "{% set n = namespace(wide) %}" + repeated(400, "{% if n | default(0) %}{% endif %}"),
      "{% set n = namespace(wide) %}" + repeated(400, "{{ n == 1 }}"),
      "{% set n = namespace(wide) %}" + repeated(1000, "{% set n.k99999 = 1 %}"),
      repeated(17, "{% set x = wide.items() %}{% set x = wide.items() %}"),
      repeated(35, "{% set x = wide.keys() %}{% set x = wide | list %}"),
      repeated(35, "{% set x = range(100000) | join %}"),
      repeated(40'000, "{% set x = {'" + std::string(100'000, 'k') + "': 1} %}"),
      repeated(10, "{% set x = spaces.replace(' ', '-') %}"),
      repeated(10, "{% set x = spaces | trim %}"),
      repeated(10, "{% set x = spaces.split() %}"),
  };
  for (const std::string& source : cases) {
    const Status status = ErrorBySteps(source, globals);
    EXPECT_EQ(status.code(), StatusCode::kOutOfSpace)
        << source.substr(0, 60) << " ... " << source.substr(source.size() - 60) << ": " << status;
  }
}

TEST(ChatTemplate, TheTimeOfTheProcessorIsBounded) {
  const Result<chat::Block> block = chat::Parse("{% for i in range(10000) %}{{ i }}{% endfor %}");
  ASSERT_TRUE(block.ok()) << block.status();
  chat::RenderLimits limits;
  EXPECT_TRUE(chat::Render(*block, {}, limits).ok());
  limits.max_time = std::chrono::milliseconds(0);
  const Status status = chat::Render(*block, {}, limits).status();
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace);
  EXPECT_THAT(status.message(), HasSubstr("takes too long"));
}

TEST(ChatTemplate, SlicesAreThoseOfPython) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 'a\u00e9\u20acz'[1:3] }}", "\u00e9\u20ac"},
      {"{{ 'a\u00e9\u20acz'[::-1] }}", "z\u20ac\u00e9a"},
      {"{{ 'abcdef'[-2:] }}", "ef"},
      {"{{ 'abcdef'[4:1:-2] }}", "ec"},
      {"{{ 'abcdef'[4:1] }}", ""},
      {"{{ ''[::-1] }}", ""},
      {"{{ 'abcdef'[1::2] }}", "bdf"},
      {"{{ [1, 2, 3, 4, 5][::2] }}", "[1, 3, 5]"},
      {"{{ [1, 2, 3][::-1] }}", "[3, 2, 1]"},
      {"{{ [1, 2, 3][5:] }}", "[]"},
      {"{{ [1, 2, 3][-100:2] }}", "[1, 2]"},
      {"{{ [][1:] }}", "[]"}};
  for (const auto& [source, expected] : cases)
    EXPECT_EQ(Render(source).value(), expected) << source;
}

TEST(ChatTemplate, MessagesQuoteLittle) {
  const std::string text =
      "{% set ns = namespace(s='xxxxxxxxxx') %}{% for i in range(15) %}{% set ns.s = ns.s + ns.s "
      "%}{% endfor %}";
  for (const char* use :
       {"{{ raise_exception(ns.s) }}", "{{ [1] | map(ns.s) | list }}",
        "{{ [1] | select(ns.s) | list }}", "{{ {}[ns.s] + 1 }}", "{{ ns.s + 1 }}"}) {
    const Status status = Render(text + use).status();
    EXPECT_FALSE(status.ok()) << use;
    EXPECT_LT(status.message().size(), 1100u) << use;
  }
  const Status digits = Render("{{ " + std::string(100'000, '9') + " }}").status();
  EXPECT_EQ(digits.code(), StatusCode::kInvalidArgument);
  EXPECT_LT(digits.message().size(), 300u);
}

TEST(ChatTemplate, HugeTemplatesAndNamesAreRefused) {
  EXPECT_EQ(Render("{{ [" + std::string(1'000'000, '1') + "] }}").status().code(),
            StatusCode::kInvalidArgument);
  std::string list = "{{ [";
  while (list.size() < 3'000'000) list += "1,";
  EXPECT_THAT(Render(list + "] }}").status().message(), HasSubstr("bytes, expected at most"));
  EXPECT_THAT(Render("{% set " + std::string(1000, 'n') + " = 1 %}").status().message(),
              HasSubstr("a name of more than 128"));
}

// Nested values are freed, compared and printed by recursion.
TEST(ChatTemplate, DeepValuesAreRefused) {
  for (const char* nest :
       {"[ns.l]", "{'a': ns.l}", "[ns.l] | list", "dict(a=ns.l)", "{'a': ns.l}.items() | list"}) {
    const std::string source =
        "{% set ns = namespace(l=[]) %}{% for i in range(90000) %}{% set ns.l = " +
        std::string(nest) + " %}{% endfor %}";
    const Status status = Render(source).status();
    EXPECT_EQ(status.code(), StatusCode::kOutOfSpace) << nest;
    EXPECT_THAT(status.message(), HasSubstr("more than 200 deep")) << nest;
  }
  const Result<std::string> fits = Render(
      "{% set ns = namespace(l=[]) %}{% for i in range(190) %}{% set ns.l = [ns.l] %}{% endfor "
      "%}{{ ns.l | string | length }}");
  EXPECT_TRUE(fits.ok()) << fits.status();
}

// What templates do with each message costs the same whatever the conversation's length.
TEST(ChatTemplate, LongConversationsFit) {
  nlohmann::json messages = nlohmann::json::array();
  for (int i = 0; i < 2000; ++i)
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", std::string(1000, 'x')}});
  const Result<std::string> text = Render(
      "{% set ns = namespace(seen=[]) %}{% for message in messages[1:] %}{% set ns.seen = ns.seen "
      "+ [message.role] %}"
      "{% if loop.index0 < messages | length - 1 and (messages | last).role == 'assistant' and "
      "messages[loop.index0 - 1] is mapping %}"
      "{{ '<|' + message['role'] + '|>' + message['content'] | trim + eos_token }}{% endif %}{% "
      "endfor %}",
      Conversation(messages, true));
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_GT(text->size(), 2'000'000u);
}

TEST(ChatTemplate, DeepTemplatesAreRefused) {
  const std::string deep(100'000, '(');
  EXPECT_EQ(Render("{{ " + deep + "1" + std::string(100'000, ')') + " }}").status().code(),
            StatusCode::kInvalidArgument);
  std::string chain = "{{ 1";
  std::string blocks;
  std::string dots = "{{ a";
  for (int i = 0; i < 100'000; ++i) {
    chain += " + 1";
    blocks += "{% if true %}";
    dots += ".b";
  }
  EXPECT_EQ(Render(chain + " }}").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Render(blocks).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Render(dots + " }}").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Render("{{ " + std::string(100'000, '-') + "1 }}").status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(Render("{{ " + std::string(100'000, '[') + " }}").status().code(),
            StatusCode::kInvalidArgument);
}

TEST(ChatTemplate, MacrosThatNeverEndAreRefused) {
  EXPECT_EQ(Render("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}").status().code(),
            StatusCode::kOutOfSpace);
  EXPECT_EQ(
      Render(
          "{% macro f(n) %}{% if true %}{{ 1 + (f(n) ~ f(n)) }}{% endif %}{% endmacro %}{{ f(1) }}")
          .status()
          .code(),
      StatusCode::kOutOfSpace);
}

TEST(ChatTemplate, NamespacesStandInVariablesOnly) {
  EXPECT_FALSE(Render("{% set a = namespace() %}{% set b = [a] %}").ok());
  EXPECT_FALSE(Render("{% set a = namespace() %}{% set a.self = a %}").ok());
  EXPECT_FALSE(Render("{% set a = namespace() %}{% set b = {'a': a} %}").ok());
}

TEST(ChatTemplate, VariablesOfTheRequestAreSeen) {
  ChatInput input = Conversation({{{"role", "user"}, {"content", "hi"}}}, false);
  input.variables = {{"thinking", true}, {"bos_token", "mine"}};
  EXPECT_EQ(Render("{{ thinking }} {{ bos_token }}", input).value(), "True <s>");
}

// Garbage never crashes the parser; most of it is refused.
TEST(ChatTemplate, GarbageIsRefusedNotCrashedOn) {
  std::mt19937 random(1);
  const std::vector<std::string> parts = {"{{",
                                          "}}",
                                          "{%",
                                          "%}",
                                          "{#",
                                          "#}",
                                          "-",
                                          " if ",
                                          " for ",
                                          " in ",
                                          "x",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          "|",
                                          "trim",
                                          "'",
                                          "\"",
                                          ".",
                                          ":",
                                          ",",
                                          "1",
                                          " else ",
                                          " endif ",
                                          " endfor ",
                                          " set ",
                                          "=",
                                          "==",
                                          "~",
                                          "{",
                                          "}",
                                          "\n",
                                          " is ",
                                          " not ",
                                          "\\",
                                          "\xE2\x98\x83",
                                          "messages",
                                          "loop"};
  for (int round = 0; round < 20'000; ++round) {
    std::string source = round % 2 == 0 ? "{{ " : "{% ";
    for (size_t i = random() % 15; i > 0; --i) source += parts[random() % parts.size()];
    (void)Render(source + (round % 2 == 0 ? " }}" : " %}")).ok();
  }
}

class TemplateFolder : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
  }
  Result<std::string> LoadAndRender() {
    LAMINA_ASSIGN_OR_RETURN(const auto parsed, ChatTemplate::Load(dir_));
    return parsed->Render(ChatInput());
  }
  const TemporaryFolder folder_;
  const std::string dir_ = folder_.path();
};

TEST_F(TemplateFolder, NoTemplate) {
  EXPECT_EQ(LoadAndRender().status().code(), StatusCode::kNotFound);
  Write("tokenizer_config.json", "{}");
  EXPECT_EQ(LoadAndRender().status().code(), StatusCode::kNotFound);
}

TEST_F(TemplateFolder, StringListAndFile) {
  Write("tokenizer_config.json",
        R"({"chat_template": "one{{ bos_token }}", "bos_token": {"content": "<b>"}})");
  EXPECT_EQ(LoadAndRender().value(), "one<b>");
  Write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tools", "template": "two"}, {"name": "default", "template": "three"}]})");
  EXPECT_EQ(LoadAndRender().value(), "three");
  Write("chat_template.jinja", "four");
  EXPECT_EQ(LoadAndRender().value(), "four");
}

TEST_F(TemplateFolder, BrokenTemplatesAreNamedWithTheirFile) {
  Write("chat_template.jinja", "{% if %}");
  EXPECT_THAT(LoadAndRender().status().message(), HasSubstr("chat_template.jinja: line 1"));
}

TEST(ChatTemplate, TheShippedModelHasOne) {
  const auto loaded = ChatTemplate::Load(testing::TinyStoriesDir());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded.value()
                ->Render(Conversation({{{"role", "user"}, {"content", "Once upon"}},
                                       {{"role", "user"}, {"content", "a time"}}},
                                      true))
                .value(),
            "Once upon a time");
}

}  // namespace
}  // namespace lamina
