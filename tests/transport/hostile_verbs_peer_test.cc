// RDMA peers that do not keep to the rules. Needs an RDMA device, except for the offers:
// tests/softroce/run.sh provides one.
#ifdef LAMINA_HAVE_VERBS
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/fabric_pair.h"
#include "transport/rendezvous.h"
#include "transport/verbs/verbs_queue_pair.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

// The connecting end by hand: a queue pair, an offer that may lie, and no one who polls.
class LyingHost final : public RendezvousHost {
 public:
  explicit LyingHost(VerbsDevices devices)
      : devices_(std::move(devices)), depths_(std::move(ChooseDepths(devices_)).value()) {}

  std::string_view name() const override { return "verbs"; }
  const Limits& limits() const override { return limits_; }
  PollSet& poll_set() override { return poll_set_; }
  boost::asio::io_context& io() override { return io_; }
  Result<std::unique_ptr<RendezvousEnd>> NewEnd(const boost::asio::ip::address& local,
                                                const EndpointOptions&) override {
    LAMINA_ASSIGN_OR_RETURN(const VerbsDevices::Place place, devices_.Find(local));
    LAMINA_ASSIGN_OR_RETURN(pair, VerbsQueuePair::Create(place, depths_));
    return std::unique_ptr<RendezvousEnd>(std::make_unique<End>(*this));
  }

 private:
  class End final : public RendezvousEnd {
   public:
    explicit End(LyingHost& host) : host_(host) {}
    std::string Offer() const override {
      VerbsOffer offer = host_.pair->Offer();
      host_.lie(offer);
      return std::string(reinterpret_cast<const char*>(&offer), sizeof(offer));
    }
    Status Join(const RendezvousPeer& peer) override {
      LAMINA_ASSIGN_OR_RETURN(const VerbsOffer offer,
                              ParseVerbsOffer(peer.offer, host_.pair->port()));
      return host_.pair->Connect(offer);
    }
    Result<std::unique_ptr<Endpoint>> Finish(RendezvousLink link) override {
      host_.link.emplace(std::move(link));
      return NotFound("no endpoint: the test is the other end");
    }

   private:
    LyingHost& host_;
  };

  VerbsDevices devices_;
  const VerbsDepths depths_;
  const Limits limits_{.max_window_bytes = 1 << 20};
  PollSet poll_set_;
  boost::asio::io_context io_;

 public:  // below what they live in
  std::function<void(VerbsOffer&)> lie = [](VerbsOffer&) {};
  std::unique_ptr<VerbsQueuePair> pair;
  std::optional<RendezvousLink> link;  // open as long as the process seems to live
};

class HostileVerbsPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<VerbsDevices> devices = VerbsDevices::OpenAll();
    if (!devices.ok()) GTEST_SKIP() << devices.status();
    host_ = std::make_unique<LyingHost>(std::move(devices).value());
    fabric_ = OpenTestFabric("verbs");
    listener_ = std::move(fabric_->Listen(FreshAddress("verbs"))).value();
  }

  void Meet() {
    std::thread connecting([&] {
      const auto made =
          StartRendezvous(*host_, listener_->address(), {4096, "liar"}, Deadline::After(kPatience));
      while (made.ok() && (*made)->Poll().status().code() == StatusCode::kTryAgain)
        std::this_thread::sleep_for(milliseconds(1));
    });
    endpoint_ = AcceptOne(*fabric_, *listener_, {4096, ""});
    connecting.join();
    ASSERT_TRUE(endpoint_ != nullptr && host_->link.has_value());
  }

  void ExpectLost(const std::string& why) {
    ASSERT_TRUE(Until([&] { return inbound_.num_lost > 0; },
                      [&] {
                        Sleep(*fabric_, {}, Deadline::After(kPatience));
                        inbound_.PollOnce(*endpoint_);
                      }));
    EXPECT_THAT(endpoint_->last_error(), HasSubstr(why));
    EXPECT_FALSE(inbound_.after_lost);
  }

  std::unique_ptr<LyingHost> host_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Endpoint> endpoint_;
  Inbound inbound_;
};

TEST_F(HostileVerbsPeer, AWindowThatIsNotThereEndsTheConnectionWithTheDevicesReason) {
  host_->lie = [](VerbsOffer& offer) { offer.window_key = 0x12345; };
  Meet();
  auto buffer = std::move(fabric_->Allocate(1000)).value();
  const WriteOp op{buffer->bytes().first(1000), 0};
  for (uint64_t tag = 0; tag < 3; ++tag) ASSERT_TRUE(endpoint_->Post({&op, 1}, 1, tag).ok());
  ExpectLost("remote access error");
  EXPECT_EQ(inbound_.sent_lost, (std::vector<uint64_t>{0, 1, 2}));
}

TEST_F(HostileVerbsPeer, CreditsThatWereNeverTaken) {
  Meet();
  ibv_send_wr request = {}, *failed = nullptr;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(5);
  ASSERT_EQ(ibv_post_send(host_->pair->get(), &request, &failed), 0);
  ExpectLost("returns credits for 5 notifications of 0");
}

TEST_F(HostileVerbsPeer, TalksOnTheRendezvousSocket) {
  Meet();
  ASSERT_TRUE(host_->link->SendReady().ok());
  ExpectLost("does not belong on the rendezvous socket");
}

TEST_F(HostileVerbsPeer, APeerThatNeverReturnsCreditsIsNotOverrun) {
  Meet();
  uint64_t posted = 0;
  const auto pushed_back = [&] {
    const Status status = endpoint_->Post({}, 1, posted);
    posted += status.ok() ? 1 : 0;
    return status.code() == StatusCode::kTryAgain && inbound_.sent.size() == posted;
  };
  ASSERT_TRUE(Until(pushed_back, [&] { inbound_.PollOnce(*endpoint_); }));
  EXPECT_EQ(posted, host_->pair->depths().credits);
  EXPECT_EQ(inbound_.num_lost, 0);
}

TEST(VerbsOffer, NonsenseIsRefused) {
  const auto text = [](const std::function<void(VerbsOffer&)>& lie) {
    VerbsOffer offer{.credits = 8, .mtu = IBV_MTU_1024};
    lie(offer);
    return std::string(reinterpret_cast<const char*>(&offer), sizeof(offer));
  };
  EXPECT_TRUE(ParseVerbsOffer(text([](VerbsOffer&) {}), VerbsPort{}).ok());
  const std::vector<std::string> bad = {
      "",
      std::string(47, 'x'),
      std::string(48, '\xff'),
      text([](VerbsOffer& offer) { offer.queue_pair = 1 << 24; }),
      text([](VerbsOffer& offer) { offer.first_packet = 1 << 24; }),
      text([](VerbsOffer& offer) { offer.mtu = 0; }),
      text([](VerbsOffer& offer) { offer.mtu = 6; }),
      text([](VerbsOffer& offer) { offer.credits = 0; }),
      text([](VerbsOffer& offer) { offer.credits = ~0u; }),
      text([](VerbsOffer& offer) { offer.is_infiniband = 1; })};
  for (const std::string& offer : bad)
    EXPECT_EQ(ParseVerbsOffer(offer, VerbsPort{}).status().code(), StatusCode::kPeerLost);
}

}  // namespace
}  // namespace lamina
#endif
