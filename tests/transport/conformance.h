// The fixture of what transport.h promises, for every fabric; the tests are in
// conformance*_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/fabric_pair.h"

namespace lamina {

inline std::vector<std::string> ConformingFabrics() {
  return WithRdma(
      {"loopback", "tcp", "shm", "faulty-loopback", "faulty-tcp", "modelled-shm", "modelled-tcp"});
}

inline std::string NameOfFabric(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::erase(name, '-');
  return name;
}

class FabricConformance : public ::testing::TestWithParam<std::string> {
 protected:
  FabricPair pair_{GetParam()};
  Inbound at_server_;
  Inbound at_client_;

  // A source as every fabric takes it.
  std::span<std::byte> Source(const std::vector<std::byte>& data) {
    auto buffer = pair_.client_fabric->Allocate(data.size());
    EXPECT_TRUE(buffer.ok()) << buffer.status();
    buffers_.push_back(std::move(buffer).value());
    std::copy(data.begin(), data.end(), buffers_.back()->bytes().begin());
    return buffers_.back()->bytes().first(data.size());
  }

  void PollBoth() {
    at_server_.PollOnce(*pair_.server);
    at_client_.PollOnce(*pair_.client);
  }

  // Posts from the client and polls both until it was taken.
  void PostSoon(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) {
    Status status;
    ASSERT_TRUE(Until(
        [&] {
          status = pair_.client->Post(ops, notify, tag);
          return status.code() != StatusCode::kTryAgain;
        },
        [&] { PollBoth(); }));
    ASSERT_TRUE(status.ok()) << status;
  }

 private:
  std::vector<std::unique_ptr<Buffer>> buffers_;
};

}  // namespace lamina
