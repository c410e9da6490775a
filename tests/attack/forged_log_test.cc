// A peer that puts lines of its own into a node's log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "manager/process.h"
#include "tests/support/crowd.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "transport/control_channel.h"
#include "wire/session_messages.h"

namespace lamina::testing {
namespace {

constexpr auto kForgedLine = "2026-01-01 00:00:00.000 error memory m0] forged";

std::string Log(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// A node, and strangers that may connect to it.
class ForgedLog : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::vector<std::string> argv = {BinPath("/lamina-memory-node"), "--memory", "1MiB",
                                           "--listen", address()};
    Result<ChildProcess> started =
        ChildProcess::Spawn({.argv = argv, .env = {}, .log_path = log()});
    ASSERT_TRUE(started.ok()) << started.status();
    node_.emplace(*std::move(started));
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string log() const { return folder_.path() + "/log"; }

  Result<std::unique_ptr<ControlConnection>> Connect(const std::string& hello) const {
    return ConnectControl(address(), {.hello = hello}, Deadline::After(std::chrono::seconds(30)));
  }

  bool AwaitInLog(const std::string& text) const {
    return AwaitTrue([&] { return Log(log()).find(text) != std::string::npos; },
                     Deadline::After(std::chrono::seconds(30)));
  }

  const TemporaryFolder folder_;
  const int port_ = FreePort();
  std::optional<ChildProcess> node_;
};

TEST_F(ForgedLog, WhatAPeerSaysOfItselfStaysWithinOneLineAndItsEscapesDoNothing) {
  const std::string hello = std::string("manager\n") + kForgedLine +
                            "\r\n\x1b[2J\x1b]0;owned\x07 \xc2\x9b" +
                            "2J\x9b\xe2\x80\xa8\xe2\x80\xae" + std::string(3000, 'x');
  const auto connection = Connect(hello);
  ASSERT_TRUE(connection.ok()) << connection.status();
  ASSERT_TRUE(AwaitInLog("connected"));
  node_->Stop(Deadline::After(std::chrono::seconds(30)));

  const std::string text = Log(log());
  for (const char* raw : {"\x1b", "\x07", "\r", "\x9b", "\xe2\x80\xa8", "\xe2\x80\xae"})
    EXPECT_EQ(text.find(raw), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(line.starts_with(kForgedLine)) << text;
    EXPECT_LT(line.size(), 600u) << line;
  }
  // But it is told what was said.
  EXPECT_NE(text.find("manager\\n2026-01-01"), std::string::npos) << text;
}

TEST_F(ForgedLog, WhoComesAgainAndAgainFillsNoDisk) {
  constexpr uint16_t kNobodysType = 99;
  ASSERT_TRUE(Connect("first").ok());  // it listens
  std::vector<std::unique_ptr<ControlConnection>> others;
  for (int i = 0; i < 100; ++i) {
    auto connection = Connect("somebody");
    ASSERT_TRUE(connection.ok()) << connection.status();
    others.push_back(std::move(*connection));
    ASSERT_TRUE(others.back()->Send(kNobodysType, "").ok());
  }
  { const Crowd nonsense(static_cast<uint16_t>(port_), 100, "GET / HTTP/1.1\r\n\r\n"); }
  ASSERT_TRUE(AwaitInLog("dropped a control message of type 99 from somebody at 127.0.0.1:"));
  ASSERT_TRUE(AwaitInLog("dropped 127.0.0.1:"));
  ASSERT_TRUE(Connect("last").ok()) << "it has served the others";
  const std::string text = Log(log());
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 80) << "20 of each kind: " << text;
}

TEST_F(ForgedLog, LibrariesThatCannotParseAMessageWriteNoLinesOfTheirOwn) {
  const auto connection = Connect("somebody");
  ASSERT_TRUE(connection.ok()) << connection.status();
  const std::string no_utf8 = "\x1a\x01\xff";  // in the field for the node's name
  ASSERT_TRUE((*connection)->Send(FrameType(MessageType::kConfigureMemory), no_utf8).ok());
  ASSERT_TRUE(AwaitInLog("the Configure message cannot be parsed"));
  EXPECT_EQ(Log(log()).find("libprotobuf"), std::string::npos) << Log(log());
}

}  // namespace
}  // namespace lamina::testing
