// A server whose model says what a test says, for protocols other than OpenAI's chats.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/support/http_fixture.h"

namespace lamina::testing {

// Shows everything that a template may look at.
inline constexpr char kShowingTemplate[] =
    "{% for t in tools or [] %}{{ t|tojson }};{% endfor %}{% for m in messages %}{{ m.role }}"
    "={% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
    "{{ m.content if m.content is not none else '(none)' }}{% for c in m.tool_calls or [] %}"
    "[{{ c.function.name }}:{{ c.function.arguments|tojson }}]{% endfor %};{% endfor %}"
    "{% if enable_thinking %}<think>\n{% endif %}";

struct NamedEvent {
  std::string name;
  nlohmann::json data;
};

class ProtocolTest : public HttpTest {
 protected:
  // A model that writes `answer`, with the space in front that this tokenizer puts there.
  void Serve(const std::string& answer, const std::string& chat_template = kShowingTemplate) {
    chat_template_ = std::move(*ChatTemplate::Parse(chat_template, {}));
    std::vector<TokenId> tokens = tokenizer().Encode(answer, false).value();
    tokens.push_back(kEos);
    StartServer(AlwaysAnswer(tokens));
  }

  // What the model was asked last.
  std::string Prompt() const { return tokenizer().Decode(engine_->requests().back().prompt, true); }

  // The events of an answer, each of which has a name that its data repeat as "type".
  static std::vector<NamedEvent> NamedEvents(const ClientResponse& response) {
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(response.complete);
    std::vector<NamedEvent> events;
    for (size_t at = 0; at < response.body.size();) {
      const size_t end = response.body.find("\n\n", at);
      const std::string event = response.body.substr(at, end - at);
      at = end == std::string::npos ? response.body.size() : end + 2;
      if (event.starts_with(':')) continue;
      const size_t line = event.find('\n');
      EXPECT_TRUE(event.starts_with("event: ")) << event;
      EXPECT_EQ(event.compare(line + 1, 6, "data: "), 0) << event;
      events.push_back({event.substr(7, line - 7),
                        nlohmann::json::parse(event.substr(line + 7), nullptr, false)});
      EXPECT_EQ(events.back().data["type"], events.back().name);
    }
    return events;
  }

  // The names of the events, with equal ones in a row told once.
  static std::vector<std::string> NamesOf(const std::vector<NamedEvent>& events) {
    std::vector<std::string> names;
    for (const NamedEvent& event : events) {
      if (names.empty() || names.back() != event.name) names.push_back(event.name);
    }
    return names;
  }
};

}  // namespace lamina::testing
