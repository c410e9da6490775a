#include "model/exported/arguments.h"

#include <fmt/format.h>

namespace lamina {

using nlohmann::json;

const json* Arguments::Find(const char* name) {
  const auto found = node_.args.find(name);
  if (found != node_.args.end()) return &*found;
  Reject(name, "something");
  return nullptr;
}

void Arguments::Reject(const char* name, const char* expected) {
  if (status_.ok())
    status_ = InvalidArgument(fmt::format("its argument \"{}\" is not {}", name, expected));
}

bool Arguments::Has(const char* name) const {
  const auto found = node_.args.find(name);
  return found != node_.args.end() && !found->is_null();
}

bool Arguments::IsNode(const char* name) const { return Has(name) && node_.args[name].is_object(); }

Symbol Arguments::Node(const char* name) {
  const json* const argument = Find(name);
  if (argument == nullptr || !argument->is_object()) {
    Reject(name, "another node");
    return {};
  }
  // ExportedProgram::Parse has made names indices of nodes that stand before this one.
  return symbols_[(*argument)["node"].get<size_t>()];
}

std::vector<Symbol> Arguments::Nodes(const char* name) {
  std::vector<Symbol> nodes;
  const json* const list = Find(name);
  if (list == nullptr || !list->is_array()) Reject(name, "a list of nodes");
  if (!status_.ok()) return nodes;
  for (const json& item : *list) {
    if (!item.is_object() && !item.is_null()) Reject(name, "a list of nodes");
    nodes.push_back(item.is_object() ? symbols_[item["node"].get<size_t>()] : Symbol());
  }
  return nodes;
}

int64_t Arguments::Integer(const char* name) {
  const json* const argument = Find(name);
  if (argument != nullptr && argument->is_number_integer()) return argument->get<int64_t>();
  Reject(name, "an integer");
  return 0;
}

double Arguments::Number(const char* name) {
  const json* const argument = Find(name);
  if (argument != nullptr && argument->is_number()) return argument->get<double>();
  Reject(name, "a number");
  return 0;
}

bool Arguments::Flag(const char* name) {
  const json* const argument = Find(name);
  if (argument != nullptr && argument->is_boolean()) return argument->get<bool>();
  Reject(name, "true or false");
  return false;
}

std::string Arguments::Text(const char* name) {
  const json* const argument = Find(name);
  if (argument != nullptr && argument->is_string()) return argument->get<std::string>();
  if (argument != nullptr && !argument->is_null()) Reject(name, "a string");
  return "";
}

std::vector<int64_t> Arguments::Integers(const char* name) {
  std::vector<int64_t> integers;
  const json* const list = Find(name);
  if (list == nullptr || !list->is_array()) Reject(name, "a list of integers");
  if (!status_.ok()) return integers;
  for (const json& item : *list) {
    if (!item.is_number_integer()) Reject(name, "a list of integers");
    integers.push_back(item.is_number_integer() ? item.get<int64_t>() : 0);
  }
  return integers;
}

int Arguments::Axis(const char* name, const Layout& layout) {
  const int64_t given = Integer(name);
  const int64_t axis = given < 0 ? given + layout.num_axes() : given;
  if (axis >= 0 && axis < layout.num_axes()) return static_cast<int>(axis);
  Reject(name, "one of the axes");
  return 0;
}

}  // namespace lamina
