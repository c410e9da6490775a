#include "hub/content_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>

#include "transport/tls_context.h"

namespace lamina {

void ContentHash::Free::operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }

ContentHash::ContentHash(ContentHash&&) noexcept = default;
ContentHash& ContentHash::operator=(ContentHash&&) noexcept = default;
ContentHash::~ContentHash() = default;

Result<ContentHash> ContentHash::Start(const HubFile& file) {
  const bool is_large = !file.sha256.empty();
  ContentHash hash;
  hash.context_.reset(EVP_MD_CTX_new());
  if (hash.context_ == nullptr ||
      EVP_DigestInit_ex(hash.context_.get(), is_large ? EVP_sha256() : EVP_sha1(), nullptr) != 1)
    return InternalError("libcrypto cannot compute a checksum, " + TakeOpenSslReason());
  // Git hashes what an object is and its length before its content.
  if (!is_large) {
    hash.Add("blob " + std::to_string(file.size));
    hash.Add(std::string_view("\0", 1));
  }
  return hash;
}

void ContentHash::Add(std::string_view bytes) {
  EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size());
}

std::string ContentHash::Finish() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  EVP_DigestFinal_ex(context_.get(), digest.data(), &size);
  std::string text;
  for (unsigned i = 0; i < size; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace lamina
