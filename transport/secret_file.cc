#include "transport/secret_file.h"

#include "transport/private_file.h"

namespace lamina {

std::string MakeSecretCommand(const std::string& path) {
  return "(umask 077 && openssl rand -hex 32 > " + path + ")";
}

Result<std::string> ReadSecretFile(const std::string& path) {
  if (path.empty()) return std::string();
  const std::string remedy =
      "copy the cluster's secret there, or make one with `" + MakeSecretCommand(path) + "`";
  // One byte more than the longest secret with its newline, so that a longer file is noticed.
  LAMINA_ASSIGN_OR_RETURN(std::string secret,
                          ReadPrivateFile({path, "secret file", remedy, kMaxSecretBytes + 2}));
  if (secret.ends_with('\n')) secret.pop_back();
  if (secret.size() < kMinSecretBytes || secret.size() > kMaxSecretBytes) {
    const std::string size = secret.size() > kMaxSecretBytes
                                 ? "more than " + std::to_string(kMaxSecretBytes)
                                 : std::to_string(secret.size());
    return InvalidArgument("secret file " + path + " holds " + size + " bytes, expected " +
                           std::to_string(kMinSecretBytes) + " to " +
                           std::to_string(kMaxSecretBytes) + "; make a good one with `" +
                           MakeSecretCommand(path) + "`");
  }
  return secret;
}

}  // namespace lamina
