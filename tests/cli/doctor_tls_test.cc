// The doctor on certificates.
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "cli/doctor/host_checks.h"
#include "tests/cli/doctor_fixture.h"
#include "tests/support/certificates.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class DoctorTls : public Doctor {
 protected:
  Finding Judge(const TlsFiles& files, const std::string& check) {
    needs_.tls = files;
    return Find(CheckTls(needs_), check);
  }

  const testing::TestCa ca_{folder_.path()};
  const TlsFiles good_ = ca_.Issue("node", {.names = "IP:10.0.0.7"});
};

TEST_F(DoctorTls, GoodFilesAndNone) {
  EXPECT_TRUE(CheckTls(needs_).empty());
  needs_.tls = good_;
  needs_.ports = {7100};
  needs_.is_manager = true;
  const std::vector<Finding> findings = CheckTls(needs_);
  EXPECT_EQ(findings.size(), 5u) << "files, trust as node, trust as manager, name, expiry";
  EXPECT_EQ(WorstOf(findings), Level::kOk);
  const Finding expiry = Find(findings, "tls-expiry");
  EXPECT_THAT(expiry.value, ::testing::AnyOf(364, 365))
      << "the clock may have moved by a second or not";
  EXPECT_EQ(expiry.cause, "valid for " + std::to_string(expiry.value) + " days");
  const HostView nowhere(root_ + "/nowhere");
  EXPECT_EQ(Find(CheckHost(nowhere, needs_), "tls-name").cause, "is for 10.0.0.7");
}

TEST_F(DoctorTls, FilesThatCannotBeUsed) {
  TlsFiles files = good_;
  files.key = folder_ / "absent.key";
  EXPECT_EQ(Judge(files, "tls-files").level, Level::kFail);
  EXPECT_THAT(Judge(files, "tls-files").cause, HasSubstr("absent.key cannot be opened"));
  files.key = ca_.Issue("other").key;
  EXPECT_THAT(Judge(files, "tls-files").cause, HasSubstr("does not belong to the certificate"));
  EXPECT_EQ(Judge(files, "tls-files").fix, "take the key that the certificate was made with");
  fs::permissions(good_.key, fs::perms::others_read, fs::perm_options::add);
  EXPECT_THAT(Judge(good_, "tls-files").cause, HasSubstr("has mode 604"));
  EXPECT_EQ(Judge(good_, "tls-files").fix, "use `chmod 600 " + good_.key + "`");
}

TEST_F(DoctorTls, WhatAPeerWouldRefuse) {
  TlsFiles foreign = good_;
  foreign.ca = testing::TestCa(folder_.path(), "other-ca").path();
  const Finding trust = Judge(foreign, "tls-trust");
  EXPECT_EQ(trust.level, Level::kFail);
  EXPECT_THAT(trust.cause, HasSubstr("is refused by whoever trusts the CA " + foreign.ca));
  EXPECT_THAT(trust.fix, HasSubstr("make a certificate with that CA"));
  const Finding name = Judge(ca_.Issue("gpu0", {.names = "DNS:gpu0"}), "tls-name");
  EXPECT_EQ(name.level, Level::kFail);
  EXPECT_THAT(name.cause, HasSubstr("is for DNS:gpu0 and not for 10.0.0.7"));
  EXPECT_EQ(Judge(ca_.Issue("client", {.usage = "clientAuth"}), "tls-trust").level, Level::kFail);
  needs_.is_manager = true;  // which listens nowhere, and has no name
  EXPECT_EQ(Judge(ca_.Issue("manager", {.names = "", .usage = "clientAuth"}), "tls-trust").level,
            Level::kOk);
  EXPECT_EQ(Judge(good_, "tls-name").subject, "no such finding");
}

TEST_F(DoctorTls, ExpiryIsToldAMonthAhead) {
  const auto level = [&](int first_day, int last_day) {
    return Judge(ca_.Issue("young", {.first_day = first_day, .last_day = last_day}), "tls-expiry")
        .level;
  };
  EXPECT_EQ(level(-1, 32), Level::kOk);
  EXPECT_EQ(level(-1, 29), Level::kWarn);
  EXPECT_EQ(level(-1, 1), Level::kWarn);
  EXPECT_EQ(level(-9, -3), Level::kFail);
  EXPECT_EQ(Judge(ca_.Issue("old", {.first_day = -9, .last_day = -3}), "tls-expiry").cause,
            "it, or a CA above it, expired 3 days ago");
  EXPECT_EQ(Judge(ca_.Issue("old", {.first_day = -9, .last_day = -3}), "tls-trust").level,
            Level::kFail);
}

TEST_F(DoctorTls, HttpsNeedsNoCaAndMayHaveAnotherName) {
  EXPECT_TRUE(CheckHttps({}, "10.0.0.7").empty());
  const TlsFiles files = ca_.Issue("web", {.names = "DNS:llm.example.org", .last_day = 20});
  const std::vector<Finding> findings =
      CheckHttps({.certificate = files.certificate, .key = files.key, .ca = ""}, "10.0.0.7");
  ASSERT_EQ(findings.size(), 3u);
  EXPECT_EQ(findings[0].level, Level::kOk);
  EXPECT_EQ(findings[1].level, Level::kWarn);
  EXPECT_THAT(findings[1].cause, HasSubstr("is for DNS:llm.example.org and not for 10.0.0.7"));
  EXPECT_EQ(findings[2].level, Level::kWarn);
  EXPECT_THAT(findings[2].fix, HasSubstr("restart the manager"));
  const std::vector<Finding> broken =
      CheckHttps({.certificate = files.certificate, .key = good_.key, .ca = ""}, "10.0.0.7");
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_EQ(broken[0].level, Level::kFail);
  EXPECT_THAT(broken[0].cause, HasSubstr("does not belong"));
}

}  // namespace
}  // namespace lamina::testing
