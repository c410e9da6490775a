// A fabric that misbehaves by plan, around one that does not: for tests of everything above the
// transport.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "transport/transport.h"

namespace lamina {

// Faults happen to what this fabric's endpoints post; what they receive is left alone. Chances are
// in [0, 1], drawn once per post and fault, so the same seed and the same posts give the same
// faults.
struct FaultPlan {
  uint64_t seed = 1;
  double drop_notification = 0;       // the bytes arrive, the notification does not
  double duplicate_notification = 0;  // the notification arrives twice
  double corrupt_payload = 0;         // one bit of one write is flipped; not of one to a device
  // The post, and all behind it, waits for `delay_polls` polls of its endpoint.
  double delay = 0;
  uint32_t delay_polls = 8;
  double reorder = 0;  // the post goes out behind the next one, or after `delay_polls` polls
  // After this many posts of one endpoint its peer counts as lost there. The peer notices when the
  // endpoint is destroyed.
  std::optional<uint64_t> disconnect_after_posts = std::nullopt;
  // After this many posts of one endpoint nothing of what it posts arrives any more, and nobody is
  // told: a half-open connection.
  std::optional<uint64_t> mute_after_posts = std::nullopt;
  std::function<bool(uint32_t notification)> mutes = nullptr;  // which of them; null: all
  // Asked at every post: while it says so there is no room, and the post gets kTryAgain. Nobody is
  // woken when there is room again. Null: there always is.
  std::function<bool()> full = nullptr;
};

// What was really injected.
struct FaultCounts {
  uint64_t dropped = 0;
  uint64_t duplicated = 0;
  uint64_t corrupted = 0;
  uint64_t delayed = 0;
  uint64_t disconnected = 0;
  uint64_t reordered = 0;
  uint64_t muted = 0;
  uint64_t without_room = 0;

  uint64_t total() const {
    return dropped + duplicated + corrupted + delayed + disconnected + reordered + muted +
           without_room;
  }
};

class FaultyEndpoint;

// Thread: owner, as every fabric.
class FaultyFabric final : public Fabric {
 public:
  FaultyFabric(std::unique_ptr<Fabric> inner, const FaultPlan& plan)
      : inner_(std::move(inner)), plan_(plan), random_(plan.seed) {}

  const FaultCounts& counts() const { return counts_; }
  void set_plan(const FaultPlan& plan) { plan_ = plan; }  // from the next post on; the seed stays

  std::string_view name() const override { return inner_->name(); }
  const Limits& limits() const override { return inner_->limits(); }
  Result<std::unique_ptr<Buffer>> Allocate(size_t bytes) override {
    return inner_->Allocate(bytes);
  }
  Result<std::unique_ptr<Listener>> Listen(const std::string& address) override;
  Result<std::unique_ptr<Connecting>> StartConnect(const std::string& address,
                                                   const EndpointOptions& options,
                                                   Deadline deadline) override;
  bool Arm() override;
  int event_fd() const override { return inner_->event_fd(); }

 private:
  friend class FaultyEndpoint;
  friend class FaultyListener;

  bool Happens(double chance) { return std::bernoulli_distribution(chance)(random_); }

  const std::unique_ptr<Fabric> inner_;
  FaultPlan plan_;
  std::mt19937_64 random_;
  FaultCounts counts_;
  std::vector<FaultyEndpoint*> endpoints_;
};

// Made by FaultyFabric.
class FaultyEndpoint final : public Endpoint {
 public:
  FaultyEndpoint(FaultyFabric& fabric, std::unique_ptr<Endpoint> inner);
  ~FaultyEndpoint() override;

  Status Post(std::span<const WriteOp> ops, std::optional<uint32_t> notify, uint64_t tag) override;
  size_t Poll(std::span<Event> out) override;
  std::span<std::byte> window() override { return inner_->window(); }
  uint64_t peer_window_bytes() const override { return inner_->peer_window_bytes(); }
  DeviceWindow peer_device_window() const override {
    return inner_->posts_to_device() ? inner_->peer_device_window() : DeviceWindow{};
  }
  bool posts_to_device() const override { return inner_->posts_to_device(); }
  const std::string& peer_hello() const override { return inner_->peer_hello(); }
  const std::string& peer_name() const override { return inner_->peer_name(); }
  std::string last_error() const override;

  // Whether polls are needed: delays count them. What waits for room is woken by the inner fabric.
  bool HasWork() const {
    return !ready_.empty() || (!held_.empty() && held_.front().polls_left > 0);
  }

 private:
  // A post that the inner endpoint has not taken yet.
  struct Held {
    uint64_t inner_tag;
    std::vector<WriteOp> ops;
    std::optional<uint32_t> notify;
    uint32_t polls_left;
    bool late = false;  // the next post overtakes it
  };
  // A post that has not come back.
  struct Outstanding {
    std::optional<uint64_t> tag;        // the caller's; none for one that a fault has added
    std::unique_ptr<Buffer> corrupted;  // what is sent instead of one of the sources
  };

  uint64_t Hold(std::span<const WriteOp> ops, std::optional<uint32_t> notify,
                std::optional<uint64_t> tag);
  void Corrupt(Held& post, Outstanding& outstanding);
  void Pump();
  void Translate(const Event& event);
  void Lose();

  FaultyFabric& fabric_;
  // By inner tag, so in the order of the posts; outlives inner_, which reads from it.
  std::map<uint64_t, Outstanding> outstanding_;
  const std::unique_ptr<Endpoint> inner_;
  std::deque<Held> held_;
  std::deque<Event> ready_;
  uint64_t num_posts_ = 0;
  uint64_t last_inner_tag_ = 0;
  bool disconnected_ = false;
  bool lost_ = false;
};

}  // namespace lamina
