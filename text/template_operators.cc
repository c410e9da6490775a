#include "text/template_operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

namespace lamina::chat {
namespace {

Status CannotCombine(std::string_view op, const Value& left, const Value& right) {
  return InvalidArgument("'" + std::string(op) + "' cannot be applied to a " + left.TypeName() +
                         " and a " + right.TypeName());
}

bool IsNumber(const Value& value) { return value.integer() != nullptr || value.real() != nullptr; }
double Number(const Value& value) {
  return value.integer() != nullptr ? static_cast<double>(*value.integer()) : *value.real();
}

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
  if (left.integer() != nullptr && right.integer() != nullptr && op != "/")
    return CombineIntegers(op, *left.integer(), *right.integer());
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

Result<Value> Add(Value left, const Value& right, Meter& meter) {
  if (left.string() != nullptr && right.string() != nullptr) {
    LAMINA_RETURN_IF_ERROR(meter.Text(left.string()->size() + right.string()->size()));
    return Value(*left.string() + *right.string());
  }
  if (left.list() == nullptr || right.list() == nullptr) return CombineNumbers("+", left, right);
  LAMINA_RETURN_IF_ERROR(meter.Entries(left.list()->size() + right.list()->size()));
  left.Extend(*right.list());
  return left;
}

Result<bool> Less(std::string_view op, const Value& left, const Value& right, Meter& meter) {
  if (left.string() != nullptr && right.string() != nullptr) {
    LAMINA_RETURN_IF_ERROR(meter.Text(std::min(left.string()->size(), right.string()->size())));
    return *left.string() < *right.string();
  }
  if (left.integer() != nullptr && right.integer() != nullptr)
    return *left.integer() < *right.integer();
  if (!IsNumber(left) || !IsNumber(right)) return CannotCombine(op, left, right);
  return Number(left) < Number(right);
}

Result<bool> Equal(const Value& left, const Value& right, Meter& meter) {
  LAMINA_RETURN_IF_ERROR(meter.Measure(left));
  LAMINA_RETURN_IF_ERROR(meter.Measure(right));
  const size_t smaller = std::min(left.text_bytes(), right.text_bytes());
  LAMINA_RETURN_IF_ERROR(left.depth() > 0 && right.depth() > 0 ? meter.Walk(smaller)
                                                               : meter.Text(smaller));
  return left.Equals(right);
}

Result<bool> Contains(const Value& container, const Value& item, Meter& meter) {
  if (container.string() != nullptr) {
    if (item.string() == nullptr)
      return InvalidArgument("'in' needs a string on its left, not a " + item.TypeName());
    LAMINA_RETURN_IF_ERROR(meter.Text(container.string()->size()));
    return FindText(*container.string(), *item.string(), 0) != std::string_view::npos;
  }
  if (container.dict() != nullptr) {
    if (item.string() == nullptr) return false;
    LAMINA_ASSIGN_OR_RETURN(const Value* found, meter.Find(*container.dict(), *item.string()));
    return found != nullptr;
  }
  if (container.list() != nullptr) {
    LAMINA_RETURN_IF_ERROR(meter.Keys(container.list()->size()));
    for (const Value& other : *container.list()) {
      LAMINA_ASSIGN_OR_RETURN(const bool equal, Equal(other, item, meter));
      if (equal) return true;
    }
    return false;
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

Result<Value> ApplyOperator(std::string_view op, Value left, const Value& right, Meter& meter) {
  if (op == "==") return Truth(Equal(left, right, meter), true);
  if (op == "!=") return Truth(Equal(left, right, meter), false);
  if (op == "in") return Truth(Contains(right, left, meter), true);
  if (op == "not in") return Truth(Contains(right, left, meter), false);
  if (op == "~") {
    LAMINA_ASSIGN_OR_RETURN(const std::string begin, meter.Print(left));
    LAMINA_ASSIGN_OR_RETURN(const std::string end, meter.Print(right));
    LAMINA_RETURN_IF_ERROR(meter.Text(begin.size() + end.size()));
    return Value(begin + end);
  }
  if (op == "<") return Truth(Less(op, left, right, meter), true);
  if (op == ">") return Truth(Less(op, right, left, meter), true);
  if (op == "<=") return Truth(Less(op, right, left, meter), false);
  if (op == ">=") return Truth(Less(op, left, right, meter), false);
  if (op == "+") return Add(std::move(left), right, meter);
  return CombineNumbers(op, left, right);
}

size_t FindText(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // A separator; address sanitizers look at all of what memmem may read.
  if (part.size() == 1) return text.find(part[0], from);
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace lamina::chat
