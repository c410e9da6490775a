// A hub is a stranger: whatever it answers, what is made of it leads to no path outside of a
// repository and to no name of a blob that is not a hash.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "hub/https_url.h"
#include "hub/hub_answers.h"
#include "hub/hub_name.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  std::vector<lamina::HubFile> files;
  (void)lamina::ParseTree(text, "hub", files);
  for (const lamina::HubFile& file : files) {
    if (!lamina::IsPlainPath(file.path)) std::abort();
    if (file.size < 0 || file.size > lamina::kMaxHubFileBytes) std::abort();
    if (file.hash().find_first_not_of("0123456789abcdef") != std::string::npos) std::abort();
    if (file.hash().size() != 40 && file.hash().size() != 64) std::abort();
  }
  const lamina::Result<std::string> commit = lamina::ParseCommit(text, "hub");
  if (commit.ok() && !lamina::IsCommit(*commit)) std::abort();
  (void)lamina::NextPage(text);
  if (const auto name = lamina::HubName::Parse(text)) {
    if (lamina::HubName::Parse(name->text())->text() != name->text()) std::abort();
    if (name->repository().find("..") != std::string::npos) std::abort();
  }
  if (const lamina::Result<lamina::HttpsUrl> url = lamina::HttpsUrl::Parse(text); url.ok()) {
    const lamina::Result<lamina::HttpsUrl> again = lamina::HttpsUrl::Parse(url->text());
    if (!again.ok() || again->text() != url->text()) std::abort();
    if (url->text().find_first_of(" \r\n") != std::string::npos) std::abort();
  }
  return 0;
}
