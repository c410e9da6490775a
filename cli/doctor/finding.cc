#include "cli/doctor/finding.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace lamina {

using nlohmann::json;
using nlohmann::ordered_json;

const char* ToText(Level level) {
  switch (level) {
    case Level::kOk: return "ok";
    case Level::kNone: return "none";
    case Level::kWarn: return "warn";
    case Level::kFail: return "fail";
  }
  return "?";
}

Level WorstOf(const std::vector<Finding>& findings) {
  Level worst = Level::kOk;
  for (const Finding& finding : findings) worst = std::max(worst, finding.level);
  return worst == Level::kNone ? Level::kOk : worst;
}

ordered_json ToJson(const std::vector<Finding>& findings) {
  ordered_json list = ordered_json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"check", finding.check},
                    {"subject", finding.subject},
                    {"level", ToText(finding.level)},
                    {"cause", finding.cause},
                    {"fix", finding.fix},
                    {"value", finding.value}});
  }
  return list;
}

Result<std::vector<Finding>> FindingsFromJson(const json& list) {
  std::vector<Finding> findings;
  try {
    for (const json& item : list) {
      const std::string level = item.at("level");
      findings.push_back({item.at("check"), item.at("subject"),
                          level == "ok"     ? Level::kOk
                          : level == "none" ? Level::kNone
                          : level == "warn" ? Level::kWarn
                                            : Level::kFail,
                          item.at("cause"), item.at("fix"), item.at("value")});
    }
  } catch (const json::exception& error) {
    return Corrupt(std::string("not a list of findings: ") + error.what());
  }
  return findings;
}

void PrintFindings(std::vector<Finding> findings, std::ostream& out) {
  std::stable_sort(findings.begin(), findings.end(),
                   [](const Finding& a, const Finding& b) { return a.level < b.level; });
  for (const Finding& finding : findings) {
    out << fmt::format("{:4}  {:12} {}: {}\n", ToText(finding.level), finding.check,
                       finding.subject, finding.cause);
    if (!finding.fix.empty()) out << fmt::format("{:19}-> {}\n", "", finding.fix);
  }
  const auto count = [&](Level level) {
    return std::ranges::count(findings, level, &Finding::level);
  };
  const auto failures = count(Level::kFail), warnings = count(Level::kWarn);
  out << fmt::format("\n{} checks: ", findings.size());
  if (failures + warnings == 0)
    out << "nothing stands in the way\n";
  else if (failures == 0)
    out << fmt::format("it works, but look at {} warning{}\n", warnings, warnings == 1 ? "" : "s");
  else
    out << fmt::format("{} failed, and lamina will not work before that is mended; warnings: {}\n",
                       failures, warnings);
}

}  // namespace lamina
