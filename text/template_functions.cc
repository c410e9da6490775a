#include "text/template_functions.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace lamina::chat {
namespace {

constexpr int64_t kMaxRange = 100'000;  // entries of range()

Result<Value> MakeDict(std::string_view name, const Arguments& arguments, Meter& meter) {
  Dict dict;
  if (!arguments.positional.empty()) {
    const Dict* source = arguments.positional[0].dict();
    if (source == nullptr)
      return InvalidArgument(std::string(name) + "() takes a dict or name=value");
    LAMINA_RETURN_IF_ERROR(meter.CopyKeys(*source));
    dict = *source;
  }
  for (const auto& [key, value] : arguments.named) {
    LAMINA_RETURN_IF_ERROR(meter.Set(dict, key, value));
  }
  dict.is_namespace = name == "namespace";
  return Value(std::move(dict));
}

Result<Value> MakeRange(const Arguments& arguments, Meter& meter) {
  std::vector<int64_t> numbers;
  for (const Value& value : arguments.positional) {
    if (value.integer() != nullptr)
      numbers.push_back(std::clamp<int64_t>(*value.integer(), INT32_MIN, INT32_MAX));
  }
  if (numbers.empty() || numbers.size() > 3 || numbers.size() != arguments.positional.size() ||
      (numbers.size() == 3 && numbers[2] == 0)) {
    return InvalidArgument("range() takes one to three integers, and the step cannot be 0");
  }
  const int64_t begin = numbers.size() == 1 ? 0 : numbers[0];
  const int64_t end = numbers.size() == 1 ? numbers[0] : numbers[1];
  const int64_t step = numbers.size() == 3 ? numbers[2] : 1;
  const int64_t length = step > 0 ? end - begin : begin - end;
  const int64_t count = length <= 0 ? 0 : (length - 1) / std::abs(step) + 1;
  if (count > kMaxRange)
    return OutOfSpace("range() of more than " + std::to_string(kMaxRange) + " entries");
  LAMINA_RETURN_IF_ERROR(meter.Entries(static_cast<size_t>(count)));
  List items;
  for (int64_t i = 0; i < count; ++i) items.emplace_back(begin + i * step);
  return Value(std::move(items));
}

Result<Value> FormatTime(const Arguments& arguments, std::time_t now) {
  const Value* format = arguments.Get(0, "format");
  if (format == nullptr || format->string() == nullptr)
    return InvalidArgument("strftime_now() takes a format, a string");
  std::tm local = {};
  localtime_r(&now, &local);
  std::array<char, 1024> text;  // a date; a format that gives more gives nothing
  return Value(std::string(
      text.data(), std::strftime(text.data(), text.size(), format->string()->c_str(), &local)));
}

}  // namespace

bool IsFunction(std::string_view name) {
  static constexpr std::string_view kNames[] = {"raise_exception", "namespace", "dict", "range",
                                                "strftime_now"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

Result<Value> CallFunction(std::string_view name, const Arguments& arguments, std::time_t now,
                           Meter& meter) {
  if (name == "range") return MakeRange(arguments, meter);
  if (name == "strftime_now") return FormatTime(arguments, now);
  if (name == "namespace" || name == "dict") return MakeDict(name, arguments, meter);
  const Value* message = arguments.Get(0, "message");
  if (message == nullptr) return InvalidArgument("the chat template refused this conversation");
  LAMINA_ASSIGN_OR_RETURN(std::string text, meter.Print(*message));
  return InvalidArgument(std::move(text));
}

}  // namespace lamina::chat
