#include "frontend/text/template_operators.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace lamina::chat {
namespace {

Status CannotCombine(std::string_view op, const Value& left, const Value& right) {
  return InvalidArgument("'" + std::string(op) + "' cannot be applied to a " + left.TypeName() + " and a " + right.TypeName());
}

bool IsNumber(const Value& value) { return value.integer() != nullptr || value.real() != nullptr; }
double Number(const Value& value) { return value.integer() != nullptr ? static_cast<double>(*value.integer()) : *value.real(); }

Result<Value> CombineIntegers(std::string_view op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  if (op == "+") {
    overflow = __builtin_add_overflow(left, right, &result);
  } else if (op == "-") {
    overflow = __builtin_sub_overflow(left, right, &result);
  } else if (op == "*") {
    overflow = __builtin_mul_overflow(left, right, &result);
  } else if (right == 0) {
    return InvalidArgument("division by zero");
  } else if (right == -1) {  // INT64_MIN / -1 has no value
    overflow = op == "//" && __builtin_sub_overflow(int64_t{0}, left, &result);
  } else {  // rounds down, as Python does
    int64_t remainder = left % right;
    if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
    result = op == "%" ? remainder : (left - remainder) / right;
  }
  if (overflow) return InvalidArgument("an integer is too large");
  return Value(result);
}

Result<Value> CombineNumbers(std::string_view op, const Value& left, const Value& right) {
  if (left.integer() != nullptr && right.integer() != nullptr && op != "/") return CombineIntegers(op, *left.integer(), *right.integer());
  if (!IsNumber(left) || !IsNumber(right)) return CannotCombine(op, left, right);
  const double a = Number(left);
  const double b = Number(right);
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (b == 0) return InvalidArgument("division by zero");
  if (op == "/") return Value(a / b);
  if (op == "//") return Value(std::floor(a / b));
  return Value(a - std::floor(a / b) * b);
}

Result<Value> Add(const Value& left, const Value& right) {
  if (left.string() != nullptr && right.string() != nullptr) return Value(*left.string() + *right.string());
  if (left.list() == nullptr || right.list() == nullptr) return CombineNumbers("+", left, right);
  List joined = *left.list();
  joined.insert(joined.end(), right.list()->begin(), right.list()->end());
  return Value(std::move(joined));
}

Result<bool> Less(std::string_view op, const Value& left, const Value& right) {
  if (left.string() != nullptr && right.string() != nullptr) return *left.string() < *right.string();
  if (left.integer() != nullptr && right.integer() != nullptr) return *left.integer() < *right.integer();
  if (!IsNumber(left) || !IsNumber(right)) return CannotCombine(op, left, right);
  return Number(left) < Number(right);
}

Result<bool> Contains(const Value& container, const Value& item) {
  if (container.string() != nullptr) {
    if (item.string() == nullptr) return InvalidArgument("'in' needs a string on its left, not a " + item.TypeName());
    return container.string()->find(*item.string()) != std::string::npos;
  }
  if (container.dict() != nullptr) return item.string() != nullptr && container.dict()->Find(*item.string()) != nullptr;
  if (container.list() != nullptr) {
    return std::any_of(container.list()->begin(), container.list()->end(), [&](const Value& other) { return other.Equals(item); });
  }
  if (container.is_undefined()) return false;
  return InvalidArgument("'in' cannot search a " + container.TypeName());
}

// The comparison's result, or its opposite.
Result<Value> Truth(const Result<bool>& result, bool expected) {
  if (!result.ok()) return result.status();
  return Value(result.value() == expected);
}

}  // namespace

Result<Value> ApplyOperator(std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return Value(left.Equals(right));
  if (op == "!=") return Value(!left.Equals(right));
  if (op == "in") return Truth(Contains(right, left), true);
  if (op == "not in") return Truth(Contains(right, left), false);
  if (op == "~") return Value(left.ToText() + right.ToText());
  if (op == "<") return Truth(Less(op, left, right), true);
  if (op == ">") return Truth(Less(op, right, left), true);
  if (op == "<=") return Truth(Less(op, right, left), false);
  if (op == ">=") return Truth(Less(op, left, right), false);
  if (op == "+") return Add(left, right);
  return CombineNumbers(op, left, right);
}

}  // namespace lamina::chat
