// The hash by which a hub names the content of a file.
#pragma once

#include <openssl/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "hub/hub_answers.h"

namespace lamina {

// Computes `file.hash()` from the content as it comes. Thread: one owner.
class ContentHash {
 public:
  // kInternal if libcrypto cannot compute it.
  static Result<ContentHash> Start(const HubFile& file);
  ContentHash(ContentHash&&) noexcept;
  ContentHash& operator=(ContentHash&&) noexcept;
  ~ContentHash();

  void Add(std::string_view bytes);
  // Hexadecimal. To be called once, at the end.
  std::string Finish();

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const;
  };
  ContentHash() = default;
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

}  // namespace lamina
