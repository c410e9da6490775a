// Values of chat templates: Python's, as far as templates see them.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lamina::chat {

class Value;
struct Node;
using List = std::vector<Value>;

// Keeps insertion order, as Python's dict. Template dicts have few keys: a linear search is the
// fastest.
class Dict {
 public:
  const Value* Find(std::string_view key) const;  // nullptr: absent
  void Set(std::string key, Value value);
  void Append(std::string key, Value value);  // REQUIRES: a new key. Does not search
  const std::vector<std::pair<std::string, Value>>& items() const { return items_; }

  bool is_namespace = false;  // made by namespace(): its entries may be assigned

 private:
  std::vector<std::pair<std::string, Value>> items_;
};

// Cheap to copy: strings, lists and dicts are shared. Only namespace() objects change after they
// were made, and those stand in variables only, never inside other values: so there are no cycles.
// But one list may stand in many places: what walks through a value may take time that grows
// exponentially with its nesting, so ask for text_bytes() before.
class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> name;  // what was looked up, for messages; null: nothing
  };
  struct None {};
  struct Function {
    std::string name;
    const Node* macro = nullptr;  // null: built in. Borrowed from the template
    size_t num_scopes = 0;        // around the definition of a macro
  };

  Value() : data_(Undefined{}) {}
  explicit Value(bool value) : data_(value) {}
  explicit Value(int64_t value) : data_(value) {}
  explicit Value(double value) : data_(value) {}
  explicit Value(std::string value)
      : data_(std::make_shared<const std::string>(std::move(value))) {}
  explicit Value(List value);
  explicit Value(Dict value);
  explicit Value(Function value) : data_(std::make_shared<const Function>(std::move(value))) {}
  static Value MakeNone() { return Value(None{}); }
  // Keeps the beginning of the name.
  static Value MakeUndefined(std::string_view name) {
    return Value(Undefined{name.empty() ? nullptr
                                        : std::make_shared<const std::string>(name.substr(0, 64))});
  }
  // REQUIRES: nesting is bounded.
  static Value FromJson(const nlohmann::ordered_json& json);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&data_); }
  const double* real() const { return std::get_if<double>(&data_); }
  const std::string* string() const { return Pointee<const std::string>(); }
  const List* list() const {
    const auto* sized = Pointee<Sized<List>>();
    return sized == nullptr ? nullptr : &sized->value;
  }
  const Dict* dict() const {
    const auto* sized = Pointee<Sized<Dict>>();
    return sized == nullptr ? nullptr : &sized->value;
  }
  const Function* function() const { return Pointee<const Function>(); }
  // The entries come behind those of this list. Where other values share it they keep it as it was,
  // and all of it is copied; else only `entries` are. REQUIRES: list(), and `entries` belong to
  // another value.
  void Extend(const List& entries);
  // Nullptr unless dict(); for namespace() objects.
  Dict* mutable_dict() { return const_cast<Dict*>(dict()); }
  const std::string& undefined_name() const;  // REQUIRES: is_undefined()

  bool Truthy() const;
  std::string ToText() const;  // Python's str(): what {{ value }} prints
  std::string Repr() const;    // Python's repr()
  // Python's json.dumps(value, ensure_ascii=False, indent=indent).
  std::string ToJson(int indent = -1) const;
  std::string TypeName() const;  // "string", "list", ... for messages
  // About how long ToText and ToJson without an indent would be; saturates.
  size_t text_bytes() const;
  int depth() const;                      // of lists and dicts within each other; 0: neither
  bool Equals(const Value& other) const;  // 1 == 1.0 == True

 private:
  // A list or dict with what was counted when it was made. Of a namespace(), which may change, it
  // is counted anew.
  template <typename T>
  struct Sized {
    T value;
    size_t text_bytes = 0;
    int depth = 0;
  };

  explicit Value(Undefined value) : data_(std::move(value)) {}
  explicit Value(None value) : data_(value) {}
  template <typename T>
  const T* Pointee() const {
    const auto* shared = std::get_if<std::shared_ptr<T>>(&data_);
    return shared == nullptr ? nullptr : shared->get();
  }
  bool AsNumber(double* number) const;

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>,
               std::shared_ptr<Sized<List>>, std::shared_ptr<Sized<Dict>>,
               std::shared_ptr<const Function>>
      data_;
};

}  // namespace lamina::chat
