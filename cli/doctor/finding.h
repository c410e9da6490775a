// What `lamina doctor` says about one thing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// kNone: it is not there, and nothing needs it.
enum class Level { kOk, kNone, kWarn, kFail };

// One check of one subject. `cause` is a line that says what is so; `fix` what to do about it, ""
// if nothing has to be done.
struct Finding {
  std::string check;    // "memlock", "rdma-port", ...: stable, for scripts
  std::string subject;  // "mlx5_0 port 1", "10.0.0.1", ...
  Level level = Level::kOk;
  std::string cause;
  std::string fix;
  // The number behind the cause, for comparing hosts: MTU in bytes, link speed in Mb/s.
  int64_t value = 0;
};

const char* ToText(Level level);  // "ok" | "none" | "warn" | "fail"

// kOk if all are kOk or kNone.
Level WorstOf(const std::vector<Finding>& findings);

// [{"check", "subject", "level", "cause", "fix", "value"}, ...]
nlohmann::ordered_json ToJson(const std::vector<Finding>& findings);

// kCorrupt if it is none.
Result<std::vector<Finding>> FindingsFromJson(const nlohmann::json& json);

// A line each: level, check, subject, cause; the fix below it. Failures stand last, where they are
// read, and behind them a line that counts.
void PrintFindings(std::vector<Finding> findings, std::ostream& out);

}  // namespace lamina
