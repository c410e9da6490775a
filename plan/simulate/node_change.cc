#include "base/input_file.h"
#include "base/units.h"
#include "base/yaml.h"
#include "plan/simulate/simulation.h"

namespace lamina {
namespace {

// A duration such as "250ms". A number alone is in seconds, and 0 needs no unit.
Result<double> ParseSeconds(const std::string& text) {
  if (text == "0" || text == "0s") return 0.0;
  const bool is_number = text.find_first_not_of("0123456789.") == std::string::npos;
  const Result<Clock::duration> time = ParseDuration(is_number ? text + "s" : text);
  if (!time.ok()) return time.status();
  return std::chrono::duration<double>(*time).count();
}

// A node that is slower than that does nothing at all, in effect.
constexpr double kLargestFactor = 1e4;

bool IsFactor(double factor) { return factor >= 1 / kLargestFactor && factor <= kLargestFactor; }

std::optional<double> ParseFactor(const std::string& text) {
  std::istringstream in(text);
  double factor = 0;
  if (!(in >> factor) || !(in >> std::ws).eof() || !IsFactor(factor)) return std::nullopt;
  return factor;
}

Result<NodeChange> ParseFactorChange(NodeChange::Kind kind, const std::string& option,
                                     const std::string& text) {
  const size_t at = text.rfind('@'), colon = text.rfind(':', at);
  const Status wrong = InvalidArgument(
      option + " '" + text +
      "': expected NAME:FACTOR@TIME, such as m0:2@10s, with a factor from 0.0001 to 10000");
  if (at == std::string::npos || colon == std::string::npos || colon == 0) return wrong;
  const std::optional<double> factor = ParseFactor(text.substr(colon + 1, at - colon - 1));
  const Result<double> seconds = ParseSeconds(text.substr(at + 1));
  if (!factor || !seconds.ok()) return wrong;
  return NodeChange{kind, text.substr(0, colon), *factor, *seconds};
}

}  // namespace

Result<NodeChange> NodeChange::ParseSlow(const std::string& text) {
  return ParseFactorChange(Kind::kSlow, "--slow", text);
}

Result<NodeChange> NodeChange::ParseSlowLink(const std::string& text) {
  return ParseFactorChange(Kind::kSlowLink, "--slow-link", text);
}

Result<NodeChange> NodeChange::ParseFail(const std::string& text) {
  const size_t at = text.rfind('@');
  const Result<double> seconds = ParseSeconds(at == std::string::npos ? "" : text.substr(at + 1));
  if (at == std::string::npos || at == 0 || !seconds.ok())
    return InvalidArgument("--fail '" + text + "': expected NAME@TIME, such as m0@10s");
  return NodeChange{Kind::kFail, text.substr(0, at), 1, *seconds};
}

Result<std::vector<NodeChange>> NodeChange::Load(const std::string& path) {
  LAMINA_ASSIGN_OR_RETURN(const std::string text, ReadInput(path, kMaxYamlBytes));
  LAMINA_ASSIGN_OR_RETURN(const YamlNode root, ParseYaml(text, path));
  YamlErrors errors(path);
  YamlMap map(root, "the top level", errors);
  map.Require("events", "a list such as [{at: 10s, slow: m0, factor: 2}, {at: 20s, fail: m1}]");
  std::vector<NodeChange> changes;
  for (YamlMap& item : map.Items("events")) {
    NodeChange& change = changes.emplace_back();
    std::string at, slow, slow_link, fail;
    item.Require("at");
    item.ReadString("at", &at);
    item.ReadString("slow", &slow);
    item.ReadString("slow_link", &slow_link);
    item.ReadString("fail", &fail);
    item.ReadDouble("factor", &change.factor);
    if (int{!slow.empty()} + int{!slow_link.empty()} + int{!fail.empty()} != 1)
      item.Fail("at",
                "an event needs one of 'slow', 'slow_link' and 'fail', with the name of a node");
    if (!IsFactor(change.factor)) item.Fail("factor", "'factor' must be from 0.0001 to 10000");
    change.kind = !slow.empty() ? Kind::kSlow : !slow_link.empty() ? Kind::kSlowLink : Kind::kFail;
    change.node = slow + slow_link + fail;
    if (const Result<double> seconds = ParseSeconds(at); seconds.ok()) {
      change.at_s = *seconds;
    } else {
      item.Fail("at", "'at' must be a time such as 10s or 250ms");
    }
    item.Close();
  }
  map.Close();
  LAMINA_RETURN_IF_ERROR(errors.status());
  return changes;
}

}  // namespace lamina
