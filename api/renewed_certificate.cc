#include "api/renewed_certificate.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <utility>

#include "base/log.h"

namespace lamina {

Result<std::unique_ptr<RenewedCertificate>> RenewedCertificate::Load(const std::string& certificate,
                                                                     const std::string& key) {
  std::unique_ptr<RenewedCertificate> renewed(new RenewedCertificate(certificate, key));
  renewed->loaded_ = renewed->Fingerprint();
  LAMINA_ASSIGN_OR_RETURN(renewed->context_, TlsContext::LoadServer(certificate, key));
  return renewed;
}

std::string RenewedCertificate::Fingerprint() const {
  std::string text;
  for (const std::string& path : {certificate_, key_}) {
    struct stat file = {};
    if (stat(path.c_str(), &file) != 0) file = {};
    text += fmt::format("{} {} {} {} {}\n", file.st_ino, file.st_size, file.st_mode,
                        file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
  }
  return text;
}

std::shared_ptr<const TlsContext> RenewedCertificate::Current(TimePoint now) {
  if (now < next_check_) return context_;
  next_check_ = now + kCheckInterval;
  // Taken before the files are read: what changes in between is seen the next time.
  std::string found = Fingerprint();
  if (found == loaded_ || found == refused_) return context_;
  Result<std::shared_ptr<const TlsContext>> renewed = TlsContext::LoadServer(certificate_, key_);
  if (!renewed.ok()) {
    LAMINA_LOG_WARN("the renewed certificate cannot be used, so the last one stays: {}",
                    renewed.status().message());
    refused_ = std::move(found);
    return context_;
  }
  context_ = *std::move(renewed);
  loaded_ = std::move(found);
  LAMINA_LOG_INFO("{} was read again: new connections show the new certificate", certificate_);
  return context_;
}

}  // namespace lamina
