// Two connected endpoints and what tests do with them.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/faulty_fabric.h"
#include "transport/modelled/modelled_fabric.h"
#include "transport/transport.h"

namespace lamina {

inline constexpr auto kPatience = std::chrono::seconds(60);  // only a broken test waits so long

// A fabric kind, "faulty-<kind>": the decorator with nothing to inject, which must change nothing,
// or "modelled-<kind>": a slow link.
inline std::unique_ptr<Fabric> OpenTestFabric(const std::string& kind) {
  if (kind.starts_with("faulty-"))
    return std::make_unique<FaultyFabric>(OpenTestFabric(kind.substr(7)), FaultPlan{});
  if (kind.starts_with("modelled-")) {
    static std::deque<ModelledNic> nics;  // outlive their fabrics
    return MakeModelledFabric(OpenTestFabric(kind.substr(9)),
                              nics.emplace_back(ModelledNic{{microseconds(300), 10e9}, {}, {}}));
  }
  auto fabric = OpenFabric(kind);
  EXPECT_TRUE(fabric.ok()) << fabric.status();
  return std::move(fabric).value();
}

// `kinds`, and those that not every build and machine has: ucx, and verbs if there is a device,
// which scripts/softroce.sh makes.
inline std::vector<std::string> WithRdma(std::vector<std::string> kinds) {
// not by opening it: that takes its time, and every test's process lists all tests
#if __has_include(<ucp/api/ucp.h>)
  kinds.push_back("ucx");
#endif
  if (OpenFabric("verbs").ok()) kinds.push_back("verbs");
  return kinds;
}

// Of the environment; "" if it is not set.
inline std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// An address that no other test, in this process or another, listens on. RDMA tests take the host
// from LAMINA_TEST_RDMA_ADDR.
inline std::string FreshAddress(const std::string& kind) {
  static std::atomic<int> counter{0};
  if (kind.ends_with("tcp") || kind == "ucx") return "127.0.0.1:0";
  if (kind == "verbs") {
    const std::string host = Variable("LAMINA_TEST_RDMA_ADDR");
    return (host.empty() ? "127.0.0.1" : host) + ":0";
  }
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++counter);
}

inline std::unique_ptr<Endpoint> AcceptOne(Fabric& fabric, Listener& listener,
                                           const EndpointOptions& options) {
  const Deadline deadline = Deadline::After(kPatience);
  while (!deadline.Passed()) {
    auto endpoint = listener.Accept(options);
    if (endpoint.ok()) return std::move(endpoint).value();
    if (endpoint.status().code() != StatusCode::kTryAgain) {
      ADD_FAILURE() << endpoint.status();
      return nullptr;
    }
    Sleep(fabric, {}, deadline);
  }
  ADD_FAILURE() << "nobody came to " << listener.address();
  return nullptr;
}

struct FabricPair {
  explicit FabricPair(const std::string& kind)
      : server_fabric(OpenTestFabric(kind)), client_fabric(OpenTestFabric(kind)) {
    auto made = server_fabric->Listen(FreshAddress(kind));
    EXPECT_TRUE(made.ok()) << made.status();
    listener = std::move(made).value();
  }

  // Connects another pair of endpoints into `server` and `client`, or elsewhere.
  void Connect(std::unique_ptr<Endpoint>& server_end, std::unique_ptr<Endpoint>& client_end,
               const EndpointOptions& server_options, const EndpointOptions& client_options) {
    std::thread connecting([&] {
      auto made =
          client_fabric->Connect(listener->address(), client_options, Deadline::After(kPatience));
      EXPECT_TRUE(made.ok()) << made.status();
      if (made.ok()) client_end = std::move(made).value();
    });
    server_end = AcceptOne(*server_fabric, *listener, server_options);
    connecting.join();
  }

  void Connect(uint64_t window_bytes) {
    Connect(server, client, {window_bytes, "server"}, {window_bytes, "client"});
  }

  std::unique_ptr<Fabric> server_fabric;
  std::unique_ptr<Fabric> client_fabric;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Endpoint> server;
  std::unique_ptr<Endpoint> client;
};

// All that came from one endpoint so far.
struct Inbound {
  std::vector<uint32_t> notifications;
  std::vector<uint64_t> sent;       // tags, ok
  std::vector<uint64_t> sent_lost;  // tags, kPeerLost
  int num_lost = 0;
  bool after_lost = false;  // something came after kPeerLost

  size_t num_events() const {
    return notifications.size() + sent.size() + sent_lost.size() + static_cast<size_t>(num_lost);
  }

  size_t PollOnce(Endpoint& endpoint, size_t max_events = 16) {
    std::vector<Event> events(max_events);
    const size_t count = endpoint.Poll(events);
    for (size_t i = 0; i < count; ++i) {
      const Event& event = events[i];
      after_lost = after_lost || num_lost > 0;
      if (event.kind == Event::Kind::kNotification) notifications.push_back(event.value);
      if (event.kind == Event::Kind::kSent)
        (event.status == StatusCode::kOk ? sent : sent_lost).push_back(event.tag);
      if (event.kind == Event::Kind::kPeerLost) ++num_lost;
    }
    return count;
  }
};

// Calls `step` until `done` says so; false if that takes too long.
inline bool Until(const std::function<bool()>& done, const std::function<void()>& step) {
  const Deadline deadline = Deadline::After(kPatience);
  while (!done()) {
    if (deadline.Passed()) return false;
    step();
  }
  return true;
}

// Of this process.
inline size_t NumOpenDescriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

inline std::vector<std::byte> Pattern(size_t bytes, uint32_t seed) {
  std::vector<std::byte> data(bytes);
  uint32_t state = seed * 2654435761u + 1;
  for (std::byte& b : data) {
    state = state * 1664525u + 1013904223u;
    b = static_cast<std::byte>(state >> 24);
  }
  return data;
}

}  // namespace lamina
