// A hub of models over TLS that serves one repository, as Hugging Face's does: what a revision is,
// the tree in pages, small files by itself and large ones by a redirect to another server.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tls_server.h"

namespace lamina::testing {

inline constexpr char kHubCommit[] = "0123456789abcdef0123456789abcdef01234567";

class TestHub {
 public:
  struct File {
    std::string content;
    bool is_large = false;  // lies on the content server, and is named by its SHA-256
  };

  // `repository`: "OWNER/NAME".
  explicit TestHub(const std::string& repository);

  std::string url() const { return hub_.url(); }
  const std::string& ca() const { return ca_.path(); }
  // Asked before the hub, or the content server, answers by itself. They may be changed at any
  // time: a request that came before may still be answered by the former one.
  using Instead = std::function<std::optional<TlsAnswer>(const TlsRequest&)>;
  void AnswerInstead(Instead instead);
  void AnswerContentInstead(Instead instead);
  std::map<std::string, File> files;  // by path; to be set before any request, as what follows
  size_t files_per_page = 1000;
  bool has_ranges = true;

  std::vector<TlsRequest> requests() const { return hub_.requests(); }
  std::vector<TlsRequest> content_requests() const { return content_.requests(); }

  static std::string Sha256(const std::string& content);
  static std::string GitSha1(const std::string& content);

 private:
  // What `instead`, one of the two below, answers.
  std::optional<TlsAnswer> Other(const Instead& instead, const TlsRequest& request);
  TlsAnswer Answer(const TlsRequest& request);
  TlsAnswer Tree(const std::string& target);
  TlsAnswer Content(const TlsRequest& request, const std::string& path);

  const std::string repository_;
  const TemporaryFolder folder_;
  const TestCa ca_{folder_.path()};
  const TlsFiles certificate_ = ca_.Issue("hub");
  std::mutex mutex_;
  Instead instead_, content_instead_;  // guarded by `mutex_`; the servers' threads call them
  TlsServer content_;
  TlsServer hub_;
};

}  // namespace lamina::testing
