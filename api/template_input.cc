#include "api/template_input.h"

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lamina {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMaxOrderedNesting = 100;
constexpr int kMaxOrderedContainers = 1 << 17;

// Objects are vectors of their entries: appended without a search, because clients choose how many
// keys there are.
class OrderedReader final : public nlohmann::json_sax<ordered_json> {
 public:
  using Entries = std::vector<std::pair<const std::string, ordered_json>>;

  ordered_json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(number_integer_t value) override { return Add(value); }
  bool number_unsigned(number_unsigned_t value) override { return Add(value); }
  bool number_float(number_float_t value, const string_t&) override { return Add(value); }
  bool string(string_t& value) override { return Add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(ordered_json::object()); }
  bool start_array(size_t) override { return Open(ordered_json::array()); }
  bool end_object() override {
    DropRepeated(open_.back().get_ref<ordered_json::object_t&>());
    return Close();
  }
  bool end_array() override { return Close(); }
  bool key(string_t& value) override {
    keys_.push_back(std::move(value));
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool Open(ordered_json container) {
    open_.push_back(std::move(container));
    return open_.size() <= kMaxOrderedNesting && ++num_containers_ <= kMaxOrderedContainers;
  }

  bool Close() {
    ordered_json closed = std::move(open_.back());
    open_.pop_back();
    return Add(std::move(closed));
  }

  bool Add(ordered_json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      open_.back().get_ref<ordered_json::object_t&>().emplace_back(std::move(keys_.back()),
                                                                   std::move(value));
      keys_.pop_back();
    }
    return true;
  }

  // Of entries with one key the first one stays, with the last one's value.
  static void DropRepeated(Entries& object) {
    std::unordered_map<std::string_view, size_t> places;
    for (size_t i = 0; i < object.size(); ++i) places.emplace(object[i].first, i);
    if (places.size() == object.size()) return;
    Entries kept;
    for (size_t i = 0; i < object.size(); ++i) {
      const size_t place = places.at(object[i].first);
      if (place != i) object[place].second = std::move(object[i].second);
    }
    for (size_t i = 0; i < object.size(); ++i) {
      if (places.at(object[i].first) == i)
        kept.emplace_back(object[i].first, std::move(object[i].second));
    }
    object.swap(kept);
  }

  ordered_json root_;
  std::vector<ordered_json> open_;
  std::vector<std::string> keys_;  // that wait for their values
  int num_containers_ = 0;
};

ApiError Wrong(const std::string& what) { return {400, what, "messages"}; }

std::optional<ApiError> ReadArguments(ordered_json& call, const std::string& where) {
  const auto function = call.is_object() ? call.find("function") : call.end();
  if (!call.is_object() || function == call.end() || !function->is_object() ||
      !function->contains("name") || !(*function)["name"].is_string())
    return Wrong(where + " must have a 'function' with a 'name'");
  ordered_json& arguments = (*function)["arguments"];
  if (arguments.is_null() || arguments == "") {
    arguments = ordered_json::object();
  } else if (arguments.is_string()) {
    auto read = ParseOrdered(arguments.get_ref<const std::string&>());
    arguments = read ? *std::move(read) : ordered_json();
  }
  if (arguments.is_object()) return std::nullopt;
  return Wrong(where + ".function.arguments must be a JSON object, as a string");
}

bool HasOrder(const ChatInput& input) {
  if (!input.tools.is_null() || !input.variables.empty()) return true;
  for (const ChatMessage& message : input.messages) {
    for (const auto& [name, value] : message.rest.items()) {
      if (name != "name") return true;
    }
  }
  return false;
}

void Reorder(std::string_view body, ChatInput& input) {
  std::optional<ordered_json> request = ParseOrdered(body);
  if (!request) return;
  if (!input.tools.is_null()) input.tools = std::move((*request)["tools"]);
  if (const auto variables = request->find("chat_template_kwargs");
      variables != request->end() && variables->is_object()) {
    for (auto& [name, value] : variables->items()) input.variables[name] = std::move(value);
  }
  ordered_json& messages = (*request)["messages"];
  for (size_t i = 0; i < input.messages.size(); ++i) {
    input.messages[i].rest = std::move(messages.at(i));
    input.messages[i].rest.erase("role");
    input.messages[i].rest.erase("content");
  }
}

}  // namespace

std::optional<ordered_json> ParseOrdered(std::string_view text) {
  OrderedReader reader;
  if (!ordered_json::sax_parse(text, &reader)) return std::nullopt;
  return reader.Take();
}

std::optional<ApiError> PrepareForTemplate(std::string_view body, ChatInput& input) {
  if (!HasOrder(input)) return std::nullopt;
  Reorder(body, input);
  for (size_t i = 0; i < input.messages.size(); ++i) {
    const auto calls = input.messages[i].rest.find("tool_calls");
    if (calls == input.messages[i].rest.end()) continue;
    const std::string where = "messages[" + std::to_string(i) + "].tool_calls";
    if (calls->is_null()) {
      input.messages[i].rest.erase(calls);
      continue;
    }
    if (!calls->is_array()) return Wrong(where + " must be a list");
    for (size_t call = 0; call < calls->size(); ++call) {
      if (auto error = ReadArguments((*calls)[call], where + "[" + std::to_string(call) + "]"))
        return error;
    }
  }
  return std::nullopt;
}

}  // namespace lamina
