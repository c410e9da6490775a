#include "transport/crypto.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>

#include "transport/posix.h"

namespace lamina {

Result<std::string> RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  if (getentropy(bytes.data(), bytes.size()) != 0)
    return InternalError(ErrnoText("no random bytes: getentropy"));
  return bytes;
}

Result<std::string> HmacSha256(std::string_view key, std::string_view message) {
  std::string mac(kMacBytes, '\0');
  unsigned int size = 0;
  const auto* text = reinterpret_cast<const unsigned char*>(message.data());
  const bool done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), text, message.size(),
           reinterpret_cast<unsigned char*>(mac.data()), &size) != nullptr;
  if (!done || size != kMacBytes) return InternalError("libcrypto does not compute HMAC-SHA256");
  return mac;
}

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace lamina
