#include "text/template_evaluator.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "text/template_builtins.h"
#include "text/template_functions.h"
#include "text/template_operators.h"
#include "text/utf8.h"

namespace lamina::chat {
namespace {

constexpr size_t kMaxRefusalBytes = 1000;   // of raise_exception(); real ones have less than 300
constexpr int64_t kMaxBound = 100'000'000;  // of slices; beyond the end of anything
// Of what a template makes; what walks through values, and what frees them, recurses.
constexpr int kMaxValueDepth = 200;
constexpr size_t kStepsPerLoopVariable = 8;  // it has nine entries
// Of what is being evaluated, through macros that call each other; a template itself nests less.
constexpr int kMaxEvaluationDepth = 600;

// The first error is kept and everything after it is skipped.
class Evaluator {
 public:
  Evaluator(Dict globals, const RenderLimits& limits)
      : limits_(limits), meter_(limits.max_steps, limits.max_output_bytes, limits.max_time) {
    scopes_.push_back(std::move(globals));
  }

  Result<std::string> Run(const Block& block) {
    Execute(block);
    if (!error_.ok()) return error_;
    return std::move(output_);
  }

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  void Fail(int line, const Status& status) {
    if (error_.ok()) error_ = status.WithContext("line " + std::to_string(line));
  }
  void Fail(int line, const std::string& message) { Fail(line, InvalidArgument(message)); }
  Value Take(int line, Result<Value> result) {
    if (result.ok()) return Made(line, *std::move(result));
    Fail(line, result.status());
    return Value();
  }
  // A value that did not exist before.
  Value Made(int line, Value value) {
    if (!Charge(line, meter_.Measure(value))) return Value();
    if (value.depth() > kMaxValueDepth)
      Fail(line, OutOfSpace("lists and dicts more than " + std::to_string(kMaxValueDepth) +
                            " deep within each other"));
    return value;
  }
  // Whether the template may go on.
  bool Charge(int line, const Status& status) {
    if (!status.ok()) Fail(line, status);
    return error_.ok();
  }
  bool Step(int line) { return Charge(line, meter_.Steps(1)); }
  // In the innermost scope.
  void Define(int line, const std::string& name, Value value) {
    Charge(line, meter_.Set(scopes_.back(), name, std::move(value)));
  }
  // nullptr: there is none, or the template may not go on.
  const Value* Find(int line, const Dict& dict, std::string_view key) {
    const Result<const Value*> found = meter_.Find(dict, key);
    return Charge(line, found.status()) ? *found : nullptr;
  }

  // Counts nesting while it lives; too much of it is an error.
  class Deeper {
   public:
    Deeper(Evaluator& evaluator, int line) : evaluator_(evaluator) {
      if (++evaluator_.depth_ > kMaxEvaluationDepth)
        evaluator_.Fail(line, OutOfSpace("the template calls itself too often"));
    }
    ~Deeper() { --evaluator_.depth_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;

   private:
    Evaluator& evaluator_;
  };

  Flow Execute(const Block& block);
  Flow Execute(const Node& node);
  Value Capture(const Block& block);
  void ExecuteOutput(const Node& node);
  Flow ExecuteIf(const Node& node);
  Flow ExecuteFor(const Node& node);
  void ExecuteSet(const Node& node);
  void Grow(const Node& node);
  void SetAttribute(const Node& node, const Value& value);
  void Bind(const Node& node, const Value& item);
  static Value MakeLoop(const List& items, size_t i);

  Value Evaluate(const Expr& expr);
  Value EvaluateName(const Expr& expr);
  Value EvaluateStored(const Expr& expr);
  Value EvaluateSequence(const Expr& expr);
  Value EvaluateAttribute(const Expr& expr, const Value& object);
  Value EvaluateIndex(const Expr& expr);
  Value EvaluateSlice(const Expr& expr);
  Value TakeSlice(const Expr& expr, const Value& object, int64_t begin, int64_t step, size_t count);
  Value EvaluateCall(const Expr& expr);
  void BindParameters(const Expr& expr, const Node& macro, const Arguments& arguments);
  Value CallMacro(const Expr& expr, const Value::Function& function, const Arguments& arguments);
  Value EvaluateBinary(const Expr& expr);
  Arguments EvaluateArguments(const Expr& expr);

  RenderLimits limits_;
  std::vector<Dict> scopes_;
  std::string output_;
  Status error_;
  Meter meter_;
  int depth_ = 0;
};

Evaluator::Flow Evaluator::Execute(const Block& block) {
  for (const Node& node : block) {
    if (!Step(node.line)) return Flow::kBreak;
    const Flow flow = Execute(node);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::Execute(const Node& node) {
  const Deeper deeper(*this, node.line);
  if (!error_.ok()) return Flow::kBreak;
  switch (node.kind) {
    case Node::Kind::kText:
      if (Charge(node.line, meter_.Text(node.text.size()))) output_ += node.text;
      break;
    case Node::Kind::kOutput: ExecuteOutput(node); break;
    case Node::Kind::kIf: return ExecuteIf(node);
    case Node::Kind::kFor: return ExecuteFor(node);
    case Node::Kind::kSet: ExecuteSet(node); break;
    case Node::Kind::kCapture: Define(node.line, node.names[0], Capture(node.body)); break;
    case Node::Kind::kMacro:
      Define(node.line, node.names[0],
             Value(Value::Function{node.names[0], &node, scopes_.size()}));
      break;
    case Node::Kind::kBreak: return Flow::kBreak;
    case Node::Kind::kContinue: return Flow::kContinue;
  }
  if (output_.size() > limits_.max_output_bytes)
    Fail(node.line, OutOfSpace("the output is larger than " +
                               std::to_string(limits_.max_output_bytes) + " bytes"));
  return error_.ok() ? Flow::kNormal : Flow::kBreak;
}

void Evaluator::ExecuteOutput(const Node& node) {
  const Result<std::string> text = meter_.Print(Evaluate(*node.expr));
  if (Charge(node.line, text.status())) output_ += *text;
}

Evaluator::Flow Evaluator::ExecuteIf(const Node& node) {
  for (const Node::Branch& branch : node.branches) {
    if (branch.condition == nullptr || Evaluate(*branch.condition).Truthy())
      return error_.ok() ? Execute(branch.body) : Flow::kBreak;
  }
  return error_.ok() ? Flow::kNormal : Flow::kBreak;
}

Evaluator::Flow Evaluator::ExecuteFor(const Node& node) {
  Result<List> all = Iterate(Evaluate(*node.expr), meter_);
  if (!all.ok()) {
    Fail(node.line, all.status());
    return Flow::kBreak;
  }
  List items;
  if (node.condition == nullptr) {
    items = *std::move(all);
  } else {
    for (const Value& item : *all) {
      scopes_.emplace_back();
      Bind(node, item);
      if (Evaluate(*node.condition).Truthy()) items.push_back(item);
      scopes_.pop_back();
    }
  }
  if (items.empty() && error_.ok()) return Execute(node.otherwise);
  for (size_t i = 0; i < items.size() && error_.ok(); ++i) {
    scopes_.emplace_back();
    Bind(node, items[i]);
    if (Charge(node.line, meter_.Steps(kStepsPerLoopVariable)))
      scopes_.back().Set("loop", MakeLoop(items, i));
    const Flow flow = Execute(node.body);
    scopes_.pop_back();
    if (flow == Flow::kBreak) break;
  }
  return error_.ok() ? Flow::kNormal : Flow::kBreak;
}

void Evaluator::Bind(const Node& node, const Value& item) {
  if (node.names.size() == 1) return Define(node.line, node.names[0], item);
  const List* parts = item.list();
  if (parts == nullptr || parts->size() != node.names.size())
    return Fail(node.line, "cannot unpack a " + item.TypeName() + " into " +
                               std::to_string(node.names.size()) + " names");
  for (size_t i = 0; i < parts->size() && error_.ok(); ++i)
    Define(node.line, node.names[i], (*parts)[i]);
}

Value Evaluator::MakeLoop(const List& items, size_t i) {
  const auto number = [](size_t n) { return Value(static_cast<int64_t>(n)); };
  Dict loop;
  loop.Set("index", number(i + 1));
  loop.Set("index0", number(i));
  loop.Set("first", Value(i == 0));
  loop.Set("last", Value(i + 1 == items.size()));
  loop.Set("length", number(items.size()));
  loop.Set("revindex", number(items.size() - i));
  loop.Set("revindex0", number(items.size() - i - 1));
  if (i > 0) loop.Set("previtem", items[i - 1]);
  if (i + 1 < items.size()) loop.Set("nextitem", items[i + 1]);
  return Value(std::move(loop));
}

// What `block` puts out, instead of putting it out.
Value Evaluator::Capture(const Block& block) {
  std::string before = std::exchange(output_, {});
  Execute(block);
  return Value(std::exchange(output_, std::move(before)));
}

// {% set x.y = x.y + ... %}, as templates do that keep a list of what they have seen.
bool GrowsItsTarget(const Node& node) {
  if (!node.into_attribute || node.expr->kind != Expr::Kind::kBinary || node.expr->name != "+")
    return false;
  const Expr& left = *node.expr->args[0];
  if (left.kind != Expr::Kind::kAttribute || left.name != node.names[1]) return false;
  return left.args[0]->kind == Expr::Kind::kName && left.args[0]->name == node.names[0];
}

// The target lets go of its old value before the new one is made: a list that nobody else holds is
// not copied for each entry that it gets.
void Evaluator::Grow(const Node& node) {
  const Expr& sum = *node.expr;
  if (!Step(sum.line)) return;
  Value left = Evaluate(*sum.args[0]);
  const Value right = Evaluate(*sum.args[1]);
  if (!error_.ok()) return;
  SetAttribute(node, Value());
  if (!error_.ok()) return;
  SetAttribute(node, Take(sum.line, ApplyOperator(sum.name, std::move(left), right, meter_)));
}

void Evaluator::ExecuteSet(const Node& node) {
  if (GrowsItsTarget(node)) return Grow(node);
  Value value = Evaluate(*node.expr);
  node.into_attribute ? SetAttribute(node, value) : Bind(node, value);
}

void Evaluator::SetAttribute(const Node& node, const Value& value) {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const Value* found = Find(node.line, *scope, node.names[0]);
    if (!error_.ok()) return;
    if (found == nullptr) continue;
    if (found->dict() == nullptr || !found->dict()->is_namespace) break;
    if (value.dict() != nullptr && value.dict()->is_namespace)
      return Fail(node.line, "a namespace cannot be put into a namespace");
    Value target = *found;
    Charge(node.line, meter_.Set(*target.mutable_dict(), node.names[1], value));
    return;
  }
  Fail(node.line, "'" + node.names[0] + "' is not a namespace(), only their attributes can be set");
}

Value Evaluator::Evaluate(const Expr& expr) {
  const Deeper deeper(*this, expr.line);
  if (!Step(expr.line)) return Value();
  switch (expr.kind) {
    case Expr::Kind::kLiteral: return expr.literal;
    case Expr::Kind::kName: return EvaluateName(expr);
    case Expr::Kind::kList:
    case Expr::Kind::kDict: return EvaluateSequence(expr);
    case Expr::Kind::kAttribute: return EvaluateAttribute(expr, Evaluate(*expr.args[0]));
    case Expr::Kind::kIndex: return EvaluateIndex(expr);
    case Expr::Kind::kSlice: return EvaluateSlice(expr);
    case Expr::Kind::kCall: return EvaluateCall(expr);
    case Expr::Kind::kFilter: {
      const Value value = Evaluate(*expr.args[0]);
      return Take(expr.line, ApplyFilter(expr.name, value, EvaluateArguments(expr), meter_));
    }
    case Expr::Kind::kTest: {
      const Value value = Evaluate(*expr.args[0]);
      const Result<bool> result = ApplyTest(expr.name, value, EvaluateArguments(expr), meter_);
      if (!result.ok()) Fail(expr.line, result.status());
      return Value(result.ok() && result.value());
    }
    case Expr::Kind::kNot: return Value(!Evaluate(*expr.args[0]).Truthy());
    case Expr::Kind::kNegate:
      return Take(expr.line,
                  ApplyOperator("-", Value(int64_t{0}), Evaluate(*expr.args[0]), meter_));
    case Expr::Kind::kBinary: return EvaluateBinary(expr);
    case Expr::Kind::kCondition:
      if (Evaluate(*expr.args[0]).Truthy()) return Evaluate(*expr.args[1]);
      return expr.args[2] == nullptr ? Value() : Evaluate(*expr.args[2]);
  }
  return Value();
}

Value Evaluator::EvaluateName(const Expr& expr) {
  size_t num_keys = 0;  // a scope has few, but scopes may be many
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    num_keys += 1 + scope->items().size();
    const Value* value = scope->Find(expr.name);
    if (value != nullptr) return Charge(expr.line, meter_.Keys(num_keys)) ? *value : Value();
  }
  if (!Charge(expr.line, meter_.Keys(num_keys))) return Value();
  if (IsFunction(expr.name)) return Value(Value::Function{expr.name});
  return Value::MakeUndefined(expr.name);
}

// A value that becomes part of another one.
Value Evaluator::EvaluateStored(const Expr& expr) {
  Value value = Evaluate(expr);
  if (value.dict() != nullptr && value.dict()->is_namespace)
    Fail(expr.line, "a namespace cannot be put into another value");
  return value;
}

Value Evaluator::EvaluateSequence(const Expr& expr) {
  if (expr.kind == Expr::Kind::kList) {
    List items;
    items.reserve(expr.args.size());
    for (const ExprPtr& item : expr.args) items.push_back(EvaluateStored(*item));
    return Made(expr.line, Value(std::move(items)));
  }
  Dict dict;
  for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
    const Value key = Evaluate(*expr.args[i]);
    if (key.string() == nullptr) {
      Fail(expr.line, "keys of a dict must be strings, not a " + key.TypeName());
      return Value();
    }
    Value value = EvaluateStored(*expr.args[i + 1]);
    if (!Charge(expr.line, meter_.Set(dict, *key.string(), std::move(value)))) return Value();
  }
  return Made(expr.line, Value(std::move(dict)));
}

Value Evaluator::EvaluateAttribute(const Expr& expr, const Value& object) {
  if (object.is_undefined()) Fail(expr.line, "'" + object.undefined_name() + "' is undefined");
  const Value* found =
      object.dict() == nullptr ? nullptr : Find(expr.line, *object.dict(), expr.name);
  return found == nullptr ? Value::MakeUndefined(expr.name) : *found;
}

Value Evaluator::EvaluateIndex(const Expr& expr) {
  const Value object = Evaluate(*expr.args[0]);
  const Value index = Evaluate(*expr.args[1]);
  if (object.is_undefined()) Fail(expr.line, "'" + object.undefined_name() + "' is undefined");
  const auto none = [&] {
    if (index.string() != nullptr) return Value::MakeUndefined(*index.string());
    return Value::MakeUndefined(
        index.list() != nullptr || index.dict() != nullptr ? index.TypeName() : index.ToText());
  };
  if (object.dict() != nullptr) {
    const Value* found =
        index.string() == nullptr ? nullptr : Find(expr.line, *object.dict(), *index.string());
    return found == nullptr ? none() : *found;
  }
  if (index.integer() == nullptr || (object.list() == nullptr && object.string() == nullptr))
    return none();
  if (object.string() != nullptr && !Charge(expr.line, meter_.Text(object.string()->size())))
    return Value();
  const int64_t size = static_cast<int64_t>(
      object.list() != nullptr ? object.list()->size() : CountCodePoints(*object.string()));
  const int64_t at = *index.integer() < 0 ? *index.integer() + size : *index.integer();
  if (at < 0 || at >= size) return none();
  if (object.list() != nullptr) return (*object.list())[static_cast<size_t>(at)];
  const size_t begin = CodePointOffset(*object.string(), static_cast<size_t>(at));
  size_t length = 0;
  ClassifyUtf8(std::string_view(*object.string()).substr(begin), &length);
  return Value(object.string()->substr(begin, length));
}

// Python's slice rules: negative bounds count from the end, bounds outside are clipped.
Value Evaluator::EvaluateSlice(const Expr& expr) {
  const Value object = Evaluate(*expr.args[0]);
  if (object.list() == nullptr && object.string() == nullptr) {
    Fail(expr.line, "a " + object.TypeName() + " cannot be sliced");
    return Value();
  }
  if (object.string() != nullptr && !Charge(expr.line, meter_.Text(object.string()->size())))
    return Value();
  const int64_t size = static_cast<int64_t>(
      object.list() != nullptr ? object.list()->size() : CountCodePoints(*object.string()));
  const auto part = [&](size_t i, int64_t fallback) {
    if (expr.args[i] == nullptr) return fallback;
    const Value value = Evaluate(*expr.args[i]);
    if (value.is_none()) return fallback;
    if (value.integer() == nullptr)
      Fail(expr.line, "bounds of a slice must be integers, not a " + value.TypeName());
    return value.integer() == nullptr
               ? fallback
               : std::clamp<int64_t>(*value.integer(), -kMaxBound, kMaxBound);
  };
  const int64_t step = part(3, 1);
  if (step == 0) {
    Fail(expr.line, "the step of a slice cannot be 0");
    return Value();
  }
  const auto bound = [&](size_t i, int64_t fallback) {
    constexpr int64_t kAbsent = INT64_MIN;
    const int64_t value = part(i, kAbsent);
    if (value == kAbsent) return fallback;
    return std::clamp<int64_t>(value < 0 ? value + size : value, step > 0 ? 0 : -1,
                               step > 0 ? size : size - 1);
  };
  const int64_t begin = bound(1, step > 0 ? 0 : size - 1);
  const int64_t end = bound(2, step > 0 ? size : -1);
  const int64_t distance = step > 0 ? end - begin : begin - end;
  return TakeSlice(expr, object, begin, step,
                   distance <= 0 ? 0 : static_cast<size_t>((distance - 1) / std::abs(step) + 1));
}

// `count` entries or characters from the one at `begin` on, each `step` behind the one before.
// REQUIRES: they are there.
Value Evaluator::TakeSlice(const Expr& expr, const Value& object, int64_t begin, int64_t step,
                           size_t count) {
  const auto at = [&](size_t i) {
    return static_cast<size_t>(begin + static_cast<int64_t>(i) * step);
  };
  if (object.list() != nullptr) {
    if (!Charge(expr.line, meter_.Entries(count))) return Value();
    List taken;
    taken.reserve(count);
    for (size_t i = 0; i < count; ++i) taken.push_back((*object.list())[at(i)]);
    return Value(std::move(taken));
  }
  const std::string& text = *object.string();
  if (count == 0) return Value(std::string());
  if (step == 1) {
    if (!Charge(expr.line, meter_.Text(text.size()))) return Value();
    const size_t from = CodePointOffset(text, at(0));
    return Value(text.substr(from, CodePointOffset(std::string_view(text).substr(from), count)));
  }
  if (!Charge(expr.line, meter_.Walk(text.size()))) return Value();
  std::vector<size_t> offsets;  // of all characters, and the end
  for (size_t offset = 0, length = 0; offset < text.size(); offset += length) {
    offsets.push_back(offset);
    ClassifyUtf8(std::string_view(text).substr(offset), &length);
  }
  offsets.push_back(text.size());
  std::string taken;
  for (size_t i = 0; i < count; ++i)
    taken.append(text, offsets[at(i)], offsets[at(i) + 1] - offsets[at(i)]);
  return Value(std::move(taken));
}

Arguments Evaluator::EvaluateArguments(const Expr& expr) {
  Arguments arguments;
  for (size_t i = 1; i < expr.args.size(); ++i)
    arguments.positional.push_back(EvaluateStored(*expr.args[i]));
  for (const auto& [name, value] : expr.keywords)
    arguments.named.emplace_back(name, EvaluateStored(*value));
  return arguments;
}

Value Evaluator::EvaluateCall(const Expr& expr) {
  const Expr& callee = *expr.args[0];
  if (callee.kind == Expr::Kind::kAttribute) {
    const Value object = Evaluate(*callee.args[0]);
    const Arguments arguments = EvaluateArguments(expr);
    if (!error_.ok()) return Value();
    return Take(expr.line, CallMethod(object, callee.name, arguments, meter_));
  }
  if (callee.kind != Expr::Kind::kName) {
    Fail(expr.line, "only functions and methods can be called");
    return Value();
  }
  const Value function = EvaluateName(callee);
  const Arguments arguments = EvaluateArguments(expr);
  if (!error_.ok()) return Value();
  if (function.function() == nullptr) {
    Fail(expr.line, function.is_undefined()
                        ? Unimplemented("the function " + callee.name + "() is not supported")
                        : InvalidArgument("'" + callee.name + "' is a " + function.TypeName() +
                                          ", not a function"));
    return Value();
  }
  if (function.function()->macro != nullptr)
    return CallMacro(expr, *function.function(), arguments);
  Result<Value> result = CallFunction(callee.name, arguments, limits_.now, meter_);
  if (result.ok()) return Made(expr.line, *std::move(result));
  if (callee.name == "raise_exception" && result.status().code() == StatusCode::kInvalidArgument) {
    // The template's own words.
    if (error_.ok())
      error_ = InvalidArgument(Shortened(result.status().message(), kMaxRefusalBytes));
  } else {
    Fail(expr.line, result.status());
  }
  return Value();
}

// A macro sees its parameters and what stands around its definition, not around its call.
Value Evaluator::CallMacro(const Expr& expr, const Value::Function& function,
                           const Arguments& arguments) {
  const Node& macro = *function.macro;
  const size_t num_parameters = macro.names.size() - 1;
  if (arguments.positional.size() > num_parameters) {
    Fail(expr.line,
         "macro " + macro.names[0] + "() takes " + std::to_string(num_parameters) + " arguments");
    return Value();
  }
  const auto hidden_begin =
      scopes_.begin() + static_cast<std::ptrdiff_t>(std::min(function.num_scopes, scopes_.size()));
  if (!Charge(expr.line, meter_.Entries(static_cast<size_t>(scopes_.end() - hidden_begin))))
    return Value();
  std::vector<Dict> hidden(std::make_move_iterator(hidden_begin),
                           std::make_move_iterator(scopes_.end()));
  scopes_.erase(hidden_begin, scopes_.end());
  scopes_.emplace_back();
  BindParameters(expr, macro, arguments);
  Value text = Capture(macro.body);
  scopes_.pop_back();
  std::move(hidden.begin(), hidden.end(), std::back_inserter(scopes_));
  return text;
}

void Evaluator::BindParameters(const Expr& expr, const Node& macro, const Arguments& arguments) {
  const size_t num_parameters = macro.names.size() - 1;
  const size_t first_default = num_parameters - macro.defaults.size();
  for (size_t i = 0; i < num_parameters; ++i) {
    const std::string& name = macro.names[i + 1];
    if (!Charge(expr.line, meter_.Keys(arguments.named.size()))) return;
    const Value* given = arguments.Get(i, name);
    Define(expr.line, name,
           given != nullptr     ? *given
           : i >= first_default ? Evaluate(*macro.defaults[i - first_default])
                                : Value::MakeUndefined(name));
  }
  for (const auto& [name, value] : arguments.named) {
    const Value* parameter = Find(expr.line, scopes_.back(), name);
    if (parameter == nullptr)
      return Fail(expr.line, "macro " + macro.names[0] + "() has no parameter '" + name + "'");
  }
}

Value Evaluator::EvaluateBinary(const Expr& expr) {
  Value left = Evaluate(*expr.args[0]);
  if (expr.name == "and") return left.Truthy() ? Evaluate(*expr.args[1]) : left;
  if (expr.name == "or") return left.Truthy() ? left : Evaluate(*expr.args[1]);
  const Value right = Evaluate(*expr.args[1]);
  if (!error_.ok()) return Value();
  return Take(expr.line, ApplyOperator(expr.name, std::move(left), right, meter_));
}

}  // namespace

Result<std::string> Render(const Block& block, Dict globals, const RenderLimits& limits) {
  return Evaluator(std::move(globals), limits).Run(block);
}

}  // namespace lamina::chat
