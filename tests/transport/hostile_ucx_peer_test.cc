// UCX peers of this machine that are gone, or lie about where their window is: they are refused,
// and the next one is served.
#if __has_include(<ucp/api/ucp.h>)
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "tests/transport/fabric_pair.h"
#include "transport/rendezvous.h"
#include "transport/sealed_memory.h"
#include "transport/ucx/ucx_endpoint.h"

namespace lamina {
namespace hostile_ucx_peer_test {
namespace {

constexpr size_t kWindowBytes = 4096;

// The connecting end by hand: it says what it was told to, and listens to nothing.
class LyingHost final : public RendezvousHost {
 public:
  std::string_view name() const override { return "ucx"; }
  const Limits& limits() const override { return kUcxLimits; }
  PollSet& poll_set() override { return poll_set_; }
  boost::asio::io_context& io() override { return io_; }
  Result<std::unique_ptr<RendezvousEnd>> NewEnd(const boost::asio::ip::address&,
                                                const EndpointOptions&) override {
    return std::unique_ptr<RendezvousEnd>(std::make_unique<End>(offer));
  }

  std::string offer;

 private:
  class End final : public RendezvousEnd {
   public:
    explicit End(std::string offer) : offer_(std::move(offer)) {}
    std::string Offer() const override { return offer_; }
    Status Join(const RendezvousPeer&) override { return OkStatus(); }
    Result<std::unique_ptr<Endpoint>> Finish(RendezvousLink) override {
      return NotFound("no endpoint: the test is the other end");
    }

   private:
    const std::string offer_;
  };

  PollSet poll_set_;
  boost::asio::io_context io_;
};

// The offer of a process of its own, which lives on.
class OfferingProcess {
 public:
  OfferingProcess() {
    std::array<int, 2> ends;
    if (pipe(ends.data()) != 0) return;
    pid_ = fork();
    if (pid_ == 0) {
      alarm(60);
      const auto context = UcxContext::Create();
      if (!context.ok()) _exit(1);
      auto region = UcxMemory::Create(**context, kUcxControlBytes + kWindowBytes);
      if (!region.ok()) _exit(2);
      const auto endpoint = UcxEndpoint::Create(**context, 7, *std::move(region));
      if (!endpoint.ok()) _exit(3);
      const Result<std::string> offer = (*endpoint)->Offer();
      if (!offer.ok() || write(ends[1], offer->data(), offer->size()) <= 0) _exit(4);
      pause();
    }
    std::array<char, kMaxOfferBytes> text{};
    const ssize_t bytes = read(ends[0], text.data(), text.size());
    if (bytes > 0) offer_.assign(text.data(), static_cast<size_t>(bytes));
    close(ends[0]);
    close(ends[1]);
  }
  ~OfferingProcess() { Kill(); }

  const std::string& offer() const { return offer_; }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  std::string offer_;
};

class HostileUcxPeer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (WantsUcxPuts()) GTEST_SKIP() << "with puts UCX maps windows, and crashes by itself";
    ASSERT_GT(process_.offer().size(), sizeof(UcxOffer));
    fabric_ = OpenTestFabric("ucx");
    listener_ = std::move(fabric_->Listen("127.0.0.1:0")).value();
  }

  // The liar says this; then an honest peer comes, which alone gets in.
  void ExpectRefused(const std::string& offer) {
    host_.offer = offer;
    const auto other = OpenTestFabric("ucx");
    std::unique_ptr<Endpoint> honest;
    std::thread connecting([&] {
      const auto lying = StartRendezvous(host_, listener_->address(), {kWindowBytes, "liar"},
                                         Deadline::After(kPatience));
      while (lying.ok() && (*lying)->Poll().status().code() == StatusCode::kTryAgain)
        std::this_thread::sleep_for(milliseconds(1));
      auto made = other->Connect(listener_->address(), {kWindowBytes, "honest"},
                                 Deadline::After(kPatience));
      if (made.ok()) honest = std::move(made).value();
    });
    const std::unique_ptr<Endpoint> accepted = AcceptOne(*fabric_, *listener_, {kWindowBytes, ""});
    connecting.join();
    ASSERT_TRUE(accepted != nullptr && honest != nullptr);
    EXPECT_EQ(accepted->peer_hello(), "honest");
  }
  // As ExpectRefused, of memory that is this process's `descriptor`.
  void ExpectMemoryRefused(int descriptor) {
    UcxOffer head;
    std::memcpy(&head, process_.offer().data(), sizeof(head));
    head.process = getpid();
    head.descriptor = descriptor;
    ExpectRefused(std::string(reinterpret_cast<const char*>(&head), sizeof(head)) +
                  process_.offer().substr(sizeof(head)));
  }

  OfferingProcess process_;  // forks, before there is another thread or UCX in this process
  LyingHost host_;
  std::unique_ptr<Fabric> fabric_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(HostileUcxPeer, OneThatHasDiedSinceItsOffer) {
  process_.Kill();
  ExpectRefused(process_.offer());
}

TEST_F(HostileUcxPeer, ADescriptorThatIsNotThere) { ExpectMemoryRefused(54321); }

TEST_F(HostileUcxPeer, NoDescriptorAndNoKey) { ExpectMemoryRefused(-1); }

TEST_F(HostileUcxPeer, ADevice) {
  const UniqueFd device(open("/dev/zero", O_RDWR | O_CLOEXEC));
  ExpectMemoryRefused(device.get());
}

TEST_F(HostileUcxPeer, AFile) {
  const UniqueFd file(open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(file.get(), 1 << 20), 0);
  ExpectMemoryRefused(file.get());
}

TEST_F(HostileUcxPeer, MemoryThatCouldShrink) {
  const UniqueFd unsealed(memfd_create("evil", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 20), 0);
  ExpectMemoryRefused(unsealed.get());
}

TEST_F(HostileUcxPeer, MemorySmallerThanItsWindow) {
  const UniqueFd small = std::move(CreateSealedMemory(kUcxControlBytes + kWindowBytes - 1)).value();
  ExpectMemoryRefused(small.get());
}

}  // namespace
}  // namespace hostile_ucx_peer_test
}  // namespace lamina
#endif
