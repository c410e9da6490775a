// The three files of TLS: what is loaded, what is refused and with which words, and what is said
// about them without a peer.
#include "transport/tls_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/support/certificates.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using lamina::testing::TestCa;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::hours kDay(24);

class TlsContextTest : public ::testing::Test {
 protected:
  static std::string Refusal(const TlsFiles& files,
                             StatusCode code = StatusCode::kInvalidArgument) {
    const auto context = TlsContext::Load(files);
    EXPECT_EQ(context.status().code(), code) << context.status();
    return context.status().message();
  }

  const TemporaryFolder folder_;
  const TestCa ca_{folder_.path()};
  const TlsFiles good_ = ca_.Issue("node");
};

TEST_F(TlsContextTest, LoadsAGoodSetAndNoneForNoFiles) {
  const auto context = TlsContext::Load(good_);
  ASSERT_TRUE(context.ok()) << context.status();
  EXPECT_TRUE((*context)->CheckTrust(ControlRole::kListener).ok());
  EXPECT_TRUE((*context)->CheckTrust(ControlRole::kConnector).ok());
  EXPECT_GT((*context)->time_left(), 364 * kDay);
  EXPECT_LE((*context)->time_left(), 365 * kDay);
  EXPECT_EQ(TlsContext::Load({}).value(), nullptr) << "no files, no TLS";
}

TEST_F(TlsContextTest, AllThreeFilesOrNone) {
  for (std::string TlsFiles::*part : {&TlsFiles::certificate, &TlsFiles::key, &TlsFiles::ca}) {
    TlsFiles files = good_;
    (files.*part).clear();
    EXPECT_THAT(Refusal(files), HasSubstr("name all three files"));
    files.*part = folder_ / "absent";
    EXPECT_THAT(Refusal(files, StatusCode::kNotFound),
                AllOf(HasSubstr(folder_ / "absent"), HasSubstr("No such file")));
    WriteFile(folder_ / "garbage",
              "-----BEGIN CERTIFICATE-----\nno base64!\n-----END CERTIFICATE-----\n");
    chmod((folder_ / "garbage").c_str(), 0600);
    files.*part = folder_ / "garbage";
    EXPECT_THAT(Refusal(files), AllOf(HasSubstr(folder_ / "garbage"), HasSubstr("; ")));
  }
}

TEST_F(TlsContextTest, TheKeyMustBeTheCertificatesAndItsOwnersOnly) {
  TlsFiles files = good_;
  files.key = ca_.Issue("other").key;
  EXPECT_THAT(Refusal(files),
              HasSubstr("TLS key " + files.key + " does not belong to the certificate " +
                        files.certificate));
  for (const mode_t mode : {0640, 0604, 0644}) {
    ASSERT_EQ(chmod(good_.key.c_str(), mode), 0);
    EXPECT_THAT(Refusal(good_), AllOf(HasSubstr("TLS key " + good_.key),
                                      HasSubstr("use `chmod 600 " + good_.key + "`")));
  }
}

TEST_F(TlsContextTest, AKeyWithAPassphraseIsRefusedAndNobodyAsked) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  TlsFiles files = good_;
  files.key = folder_ / "locked.key";
  std::FILE* file = std::fopen(files.key.c_str(), "w");
  ASSERT_NE(file, nullptr);
  PEM_write_PKCS8PrivateKey(file, key, EVP_aes_256_cbc(), "passphrase", 10, nullptr, nullptr);
  std::fclose(file);
  EVP_PKEY_free(key);
  ASSERT_EQ(chmod(files.key.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(files),
              AllOf(HasSubstr("has a passphrase"), HasSubstr("`openssl pkey -in " + files.key)));
}

TEST_F(TlsContextTest, TrustIsWhatAPeerWouldSay) {
  const auto trust = [](const TlsFiles& files, ControlRole role) {
    return TlsContext::Load(files).value()->CheckTrust(role).message();
  };
  TlsFiles foreign = good_;
  foreign.ca = TestCa(folder_.path(), "another-ca").path();
  EXPECT_THAT(trust(foreign, ControlRole::kListener),
              AllOf(HasSubstr(foreign.ca), HasSubstr("unable to get local issuer certificate")));
  const TlsFiles expired = ca_.Issue("expired", {.first_day = -10, .last_day = -1});
  EXPECT_THAT(trust(expired, ControlRole::kListener), HasSubstr("certificate has expired"));
  EXPECT_THAT(trust(ca_.Issue("future", {.first_day = 2}), ControlRole::kListener),
              HasSubstr("certificate is not yet valid"));
  const TlsFiles server_only = ca_.Issue("server", {.usage = "serverAuth"});
  EXPECT_EQ(trust(server_only, ControlRole::kListener), "");
  EXPECT_THAT(trust(server_only, ControlRole::kConnector), HasSubstr("purpose"));
}

TEST_F(TlsContextTest, TimeLeftIsTheShortestOfTheChain) {
  EXPECT_LT(TlsContext::Load(ca_.Issue("expired", {.first_day = -10, .last_day = -2}))
                .value()
                ->time_left(),
            -1 * kDay);
  const TestCa old_ca(folder_.path(), "old-ca", 7);
  const auto left = TlsContext::Load(old_ca.Issue("young")).value()->time_left();
  EXPECT_GT(left, 6 * kDay);
  EXPECT_LE(left, 7 * kDay);
}

TEST_F(TlsContextTest, NamesAreThoseOfTheSubjectAltName) {
  const auto context = *TlsContext::Load(
      ca_.Issue("gpu0", {.names = "DNS:gpu0.cluster,DNS:*.lab.example,IP:10.0.0.1,IP:fd00::1"}));
  for (const char* host :
       {"gpu0.cluster", "GPU0.cluster", "a.lab.example", "10.0.0.1", "fd00::1", "fd00:0::1"}) {
    EXPECT_TRUE(context->CheckName(host).ok()) << host;
  }
  for (const char* host :
       {"gpu0", "gpu1.cluster", "a.b.lab.example", "10.0.0.2", "fd00::2", "127.0.0.1", ""}) {
    // "gpu0" is the subject's common name, which does not count.
    EXPECT_FALSE(context->CheckName(host).ok()) << host;
  }
  EXPECT_THAT(context->CheckName("mem0").message(),
              AllOf(HasSubstr("DNS:gpu0.cluster"), HasSubstr("10.0.0.1"), HasSubstr("mem0")));
  const auto nameless = *TlsContext::Load(ca_.Issue("mem0", {.names = ""}));
  EXPECT_THAT(nameless->CheckName("mem0").message(), HasSubstr("no name at all"));
}

}  // namespace
}  // namespace lamina
