// A peer that puts lines of its own into a node's log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "manager/process.h"
#include "tests/support/free_port.h"
#include "tests/support/paths.h"
#include "tests/support/serving.h"
#include "tests/support/temporary_folder.h"
#include "transport/control_channel.h"

namespace lamina::testing {
namespace {

constexpr auto kForgedLine = "2026-01-01 00:00:00.000 error memory m0] forged";

std::string Log(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ForgedLog, WhatAPeerSaysOfItselfStaysWithinOneLineAndItsEscapesDoNothing) {
  const TemporaryFolder folder;
  const std::string log = folder.path() + "/log";
  const std::string address = "127.0.0.1:" + std::to_string(FreePort());
  ChildProcess::Options options{
      .argv = {BinPath("/lamina-memory-node"), "--memory", "1MiB", "--listen", address},
      .env = {},
      .log_path = log};
  Result<ChildProcess> node = ChildProcess::Spawn(options);
  ASSERT_TRUE(node.ok()) << node.status();

  const std::string hello = std::string("manager\n") + kForgedLine +
                            "\r\n\x1b[2J\x1b]0;owned\x07 \xc2\x9b" + "2J" + std::string(3000, 'x');
  Result<std::unique_ptr<ControlConnection>> connection =
      ConnectControl(address, {.hello = hello}, Deadline::After(std::chrono::seconds(30)));
  ASSERT_TRUE(connection.ok()) << connection.status();
  ASSERT_TRUE(AwaitTrue([&] { return Log(log).find("connected") != std::string::npos; },
                        Deadline::After(std::chrono::seconds(30))));
  node->Stop(Deadline::After(std::chrono::seconds(30)));

  const std::string text = Log(log);
  for (const char* raw : {"\x1b", "\x07", "\r", "\xc2\x9b"})
    EXPECT_EQ(text.find(raw), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_FALSE(line.starts_with(kForgedLine)) << text;
    EXPECT_LT(line.size(), 600u) << line;
  }
  // But it is told what was said.
  EXPECT_NE(text.find("manager\\n2026-01-01"), std::string::npos) << text;
}

}  // namespace
}  // namespace lamina::testing
