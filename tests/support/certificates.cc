#include "tests/support/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <stdexcept>

namespace lamina::testing {
namespace {

constexpr long kDay = 24 * 3600;

void Must(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("test certificates: cannot " + what);
}

void AddExtension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  Must(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1, "add " + value);
  X509_EXTENSION_free(extension);
}

template <typename Write>
void WritePem(const std::string& path, mode_t mode, Write write) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  Must(file != nullptr && chmod(path.c_str(), mode) == 0 && write(file) == 1 &&
           std::fclose(file) == 0,
       "write " + path);
}

}  // namespace

struct TestCa::Identity {
  Identity(const std::string& common_name, int first_day, int last_day)
      : key(EVP_EC_gen("P-256")), certificate(X509_new()) {
    Must(key != nullptr && certificate != nullptr, "make a key");
    X509_set_version(certificate, X509_VERSION_3);
    uint32_t serial = 0;
    Must(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1,
         "make a serial number");
    ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial + 1ull);
    X509_gmtime_adj(X509_getm_notBefore(certificate), first_day * kDay);
    X509_gmtime_adj(X509_getm_notAfter(certificate), last_day * kDay);
    X509_set_pubkey(certificate, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(common_name.c_str()), -1, -1,
                               0);
  }
  ~Identity() {
    X509_free(certificate);
    EVP_PKEY_free(key);
  }
  Identity(const Identity&) = delete;
  Identity& operator=(const Identity&) = delete;

  void SignBy(const Identity& issuer) {
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer.certificate));
    Must(X509_sign(certificate, issuer.key, EVP_sha256()) > 0, "sign");
  }

  EVP_PKEY* key;
  X509* certificate;
};

TestCa::TestCa(std::string folder, const std::string& name, int last_day)
    : folder_(std::move(folder)),
      path_(folder_ + "/" + name + ".pem"),
      own_(std::make_unique<Identity>(name, -1, last_day)) {
  AddExtension(own_->certificate, own_->certificate, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(own_->certificate, own_->certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  own_->SignBy(*own_);
  WritePem(path_, 0644, [&](std::FILE* file) { return PEM_write_X509(file, own_->certificate); });
}

TestCa::~TestCa() = default;

TlsFiles TestCa::Issue(const std::string& name, const CertificateWishes& wishes) const {
  Identity identity(name, wishes.first_day, wishes.last_day);
  AddExtension(identity.certificate, own_->certificate, NID_basic_constraints, "critical,CA:FALSE");
  if (!wishes.names.empty())
    AddExtension(identity.certificate, own_->certificate, NID_subject_alt_name, wishes.names);
  if (!wishes.usage.empty())
    AddExtension(identity.certificate, own_->certificate, NID_ext_key_usage, wishes.usage);
  identity.SignBy(*own_);
  const TlsFiles files = {folder_ + "/" + name + ".pem", folder_ + "/" + name + ".key", path_};
  WritePem(files.certificate, 0644,
           [&](std::FILE* file) { return PEM_write_X509(file, identity.certificate); });
  WritePem(files.key, 0600, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, identity.key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  return files;
}

}  // namespace lamina::testing
