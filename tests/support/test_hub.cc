#include "tests/support/test_hub.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

namespace lamina::testing {
namespace {

std::string Digest(const EVP_MD* kind, const std::string& bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, kind, nullptr);
  std::string text;
  for (unsigned i = 0; i < size; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", digest[i]);
    text += digits;
  }
  return text;
}

// "%2F" becomes "/".
std::string Decoded(const std::string& text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      decoded += static_cast<char>(std::strtol(text.substr(i + 1, 2).c_str(), nullptr, 16));
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace

std::string TestHub::Sha256(const std::string& content) { return Digest(EVP_sha256(), content); }

std::string TestHub::GitSha1(const std::string& content) {
  return Digest(EVP_sha1(),
                "blob " + std::to_string(content.size()) + std::string(1, '\0') + content);
}

TestHub::TestHub(const std::string& repository)
    : repository_(repository),
      content_(certificate_,
               [this](const TlsRequest& request) {
                 if (auto other = Other(content_instead_, request)) return *other;
                 return Content(request, Decoded(request.target.substr(1)));
               }),
      hub_(certificate_, [this](const TlsRequest& request) {
        if (auto other = Other(instead_, request)) return *other;
        return Answer(request);
      }) {}

void TestHub::AnswerInstead(Instead instead) {
  const std::lock_guard lock(mutex_);
  instead_ = std::move(instead);
}

void TestHub::AnswerContentInstead(Instead instead) {
  const std::lock_guard lock(mutex_);
  content_instead_ = std::move(instead);
}

std::optional<TlsAnswer> TestHub::Other(const Instead& instead, const TlsRequest& request) {
  std::unique_lock lock(mutex_);
  const Instead asked = instead;
  lock.unlock();
  return asked ? asked(request) : std::nullopt;
}

TlsAnswer TestHub::Answer(const TlsRequest& request) {
  const std::string api = "/api/models/" + repository_, revision = api + "/revision/",
                    tree = api + "/tree/" + kHubCommit + "?",
                    resolve = "/" + repository_ + "/resolve/" + kHubCommit + "/";
  const std::string& target = request.target;
  if (target == revision + "main" || target == revision + "v1.0" || target == revision + kHubCommit)
    return TlsAnswer::Http(200, nlohmann::json({{"id", repository_}, {"sha", kHubCommit}}).dump());
  if (target.starts_with(revision))
    return TlsAnswer::Http(404, "{}", "X-Error-Code: RevisionNotFound\r\n");
  if (target.starts_with(tree)) return Tree(target);
  if (!target.starts_with(resolve))
    return TlsAnswer::Http(401, "{}", "X-Error-Code: RepoNotFound\r\n");
  const std::string path = Decoded(target.substr(resolve.size()));
  const auto file = files.find(path);
  if (file == files.end()) return TlsAnswer::Http(404, "", "X-Error-Code: EntryNotFound\r\n");
  if (!file->second.is_large) return Content(request, path);
  return TlsAnswer::Http(302, "",
                         "Location: " + content_.url() + "/" + target.substr(resolve.size()) +
                             "\r\nX-Linked-Etag: \"" + Sha256(file->second.content) + "\"\r\n");
}

TlsAnswer TestHub::Tree(const std::string& target) {
  const size_t cursor = target.find("cursor=");
  const size_t first =
      cursor == std::string::npos ? 0 : std::strtoul(target.c_str() + cursor + 7, nullptr, 10);
  nlohmann::json list = nlohmann::json::array();
  const size_t last = std::min(files.size(), first + files_per_page);
  for (size_t i = first; i < last; ++i) {
    const auto& [path, file] = *std::next(files.begin(), static_cast<std::ptrdiff_t>(i));
    nlohmann::json entry = {{"type", "file"},
                            {"path", path},
                            {"size", file.content.size()},
                            {"oid", GitSha1(file.content)}};
    if (file.is_large)
      entry["lfs"] = {{"oid", Sha256(file.content)}, {"size", file.content.size()}};
    list.push_back(entry);
  }
  list.push_back({{"type", "directory"}, {"path", "folder"}, {"size", 0}, {"oid", kHubCommit}});
  const std::string next = last == files.size()
                               ? ""
                               : "Link: <" + url() + "/api/models/" + repository_ + "/tree/" +
                                     kHubCommit + "?recursive=true&cursor=" + std::to_string(last) +
                                     ">; rel=\"next\"\r\n";
  return TlsAnswer::Http(200, list.dump(), next);
}

TlsAnswer TestHub::Content(const TlsRequest& request, const std::string& path) {
  const auto file = files.find(path);
  if (file == files.end()) return TlsAnswer::Http(404, "");
  const std::string& content = file->second.content;
  const std::string range = request.Header("range");
  if (range.empty() || !has_ranges) return TlsAnswer::Http(200, content);
  const size_t first = std::strtoul(range.c_str() + std::string("bytes=").size(), nullptr, 10);
  if (first >= content.size()) return TlsAnswer::Http(416, "");
  return TlsAnswer::Http(206, content.substr(first),
                         "Content-Range: bytes " + std::to_string(first) + "-" +
                             std::to_string(content.size() - 1) + "/" +
                             std::to_string(content.size()) + "\r\n");
}

}  // namespace lamina::testing
