#include <fmt/format.h>

#include "cli/doctor/host_checks.h"
#include "transport/tls_context.h"

namespace lamina {
namespace {

constexpr std::chrono::hours kDay(24);
constexpr int64_t kWarnDays = 30;  // time to make and distribute a new one

// Messages about TLS files say behind their last "; " what to do.
Finding FindingFrom(const std::string& check, const std::string& subject, const Status& status,
                    const std::string& cause_if_ok) {
  if (status.ok()) return {check, subject, Level::kOk, cause_if_ok, ""};
  const std::string& message = status.message();
  const size_t cut = message.rfind("; ");
  if (cut == std::string::npos)
    return {check, subject, Level::kFail, message, "docs/tls.md says how certificates are made"};
  return {check, subject, Level::kFail, message.substr(0, cut), message.substr(cut + 2)};
}

Finding JudgeExpiry(const std::string& check, const std::string& certificate,
                    std::chrono::seconds left, const std::string& whom_to_restart) {
  const int64_t days = left / kDay;
  Finding finding{check, certificate, Level::kOk, fmt::format("valid for {} days", days), "", days};
  if (left >= kWarnDays * kDay) return finding;
  finding.level = left > left.zero() ? Level::kWarn : Level::kFail;
  if (left <= left.zero())
    finding.cause = fmt::format("it, or a CA above it, expired {} days ago", -days);
  finding.fix = "make a new one (docs/tls.md) and restart " + whom_to_restart;
  return finding;
}

}  // namespace

std::vector<Finding> CheckTls(const HostNeeds& needs) {
  if (needs.tls.empty()) return {};
  const std::string& certificate = needs.tls.certificate;
  const Result<std::shared_ptr<const TlsContext>> loaded = TlsContext::Load(needs.tls);
  std::vector<Finding> findings = {FindingFrom("tls-files", certificate, loaded.status(),
                                               "certificate, key and CA can be read and fit")};
  if (!loaded.ok()) return findings;
  const TlsContext& context = **loaded;
  const bool listens = !needs.ports.empty() || !needs.is_manager;
  if (listens) {
    findings.push_back(FindingFrom("tls-trust", certificate,
                                   context.CheckTrust(ControlRole::kListener),
                                   "a manager would take it"));
  }
  if (needs.is_manager) {
    findings.push_back(FindingFrom("tls-trust", certificate,
                                   context.CheckTrust(ControlRole::kConnector),
                                   "nodes would take the manager's"));
  }
  if (listens && !needs.address.empty()) {
    findings.push_back(FindingFrom("tls-name", certificate, context.CheckName(needs.address),
                                   "is for " + needs.address));
  }
  findings.push_back(
      JudgeExpiry("tls-expiry", certificate, context.time_left(), "the daemons of this host"));
  return findings;
}

std::vector<Finding> CheckHttps(const TlsFiles& https, const std::string& address) {
  if (https.empty()) return {};
  const Result<std::shared_ptr<const TlsContext>> loaded =
      TlsContext::LoadServer(https.certificate, https.key);
  std::vector<Finding> findings = {FindingFrom("https-files", https.certificate, loaded.status(),
                                               "certificate and key can be read and fit")};
  if (!loaded.ok()) return findings;
  // Clients may know the server by another name.
  findings.push_back(FindingFrom("https-name", https.certificate, (*loaded)->CheckName(address),
                                 "is for " + address));
  if (findings.back().level == Level::kFail) findings.back().level = Level::kWarn;
  findings.push_back(
      JudgeExpiry("https-expiry", https.certificate, (*loaded)->time_left(), "the manager"));
  return findings;
}

}  // namespace lamina
