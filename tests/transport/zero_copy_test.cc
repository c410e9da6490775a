#include "transport/tcp/zero_copy.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <vector>

#include "tests/transport/fabric_pair.h"
#include "transport/posix.h"
#include "transport/tcp_socket.h"

namespace lamina {
namespace {

class ZeroCopy : public ::testing::Test {
 protected:
  ZeroCopy() {
    from_ = std::move(
                ConnectTcp(io_, BoundAddress(acceptor_, "127.0.0.1:0"), Deadline::After(kPatience)))
                .value();
    acceptor_.non_blocking(false);
    acceptor_.accept(to_);
  }

  // One send; what came out at the other end.
  std::vector<std::byte> SendOnce(ZeroCopySends& sends, const std::vector<std::byte>& data) {
    std::thread sending([&] {
      from_.non_blocking(false);
      size_t sent = 0;
      while (sent < data.size()) {
        const int flags = sends.FlagsFor(data.size());
        sent += from_.send(boost::asio::buffer(data.data() + sent, data.size() - sent), flags);
        if (flags != 0) sends.CountSend();
      }
    });
    std::vector<std::byte> got(data.size());
    boost::asio::read(to_, boost::asio::buffer(got));
    sending.join();
    return got;
  }

  boost::asio::io_context io_;
  Tcp::acceptor acceptor_ = std::move(ListenTcp(io_, "127.0.0.1:0")).value();
  Tcp::socket from_{io_}, to_{io_};
};

TEST_F(ZeroCopy, TowardsThisMachineItIsTriedOnceAndLeftOff) {
  ZeroCopySends sends(from_.native_handle());
  const auto data = Pattern(200'000, 1);
  ASSERT_EQ(sends.FlagsFor(data.size()), MSG_ZEROCOPY);
  EXPECT_EQ(SendOnce(sends, data), data);
  const uint32_t num_sent = sends.num_sent();
  EXPECT_GT(num_sent, 0u);
  ASSERT_TRUE(Until([&] { return sends.AreDone(num_sent); }, [&] { sends.Collect(); }));
  EXPECT_EQ(sends.FlagsFor(data.size()), 0);
  EXPECT_EQ(SendOnce(sends, data), data);
  EXPECT_EQ(sends.num_sent(), num_sent);
}

TEST_F(ZeroCopy, SmallSendsAreCopied) {
  ZeroCopySends sends(from_.native_handle());
  EXPECT_EQ(sends.FlagsFor(kMinZeroCopyBytes - 1), 0);
  EXPECT_EQ(sends.FlagsFor(kMinZeroCopyBytes), MSG_ZEROCOPY);
  EXPECT_TRUE(sends.AreDone(sends.num_sent()));
}

TEST_F(ZeroCopy, WhereItCannotBeHadNothingChanges) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const UniqueFd first(ends[0]), second(ends[1]);
  ZeroCopySends sends(first.get());
  EXPECT_EQ(sends.FlagsFor(size_t{1} << 20), 0);
}

}  // namespace
}  // namespace lamina
