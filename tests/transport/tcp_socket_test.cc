#include "transport/tcp_socket.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/system/system_error.hpp>

namespace lamina {
namespace {

// Listens while the process can open no further descriptor.
Status ListenWithoutDescriptors(boost::asio::io_context& context) {
  rlimit before{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  Status status = ListenTcp(context, "127.0.0.1:0").status();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  return status;
}

TEST(TcpSocket, AListenerWithoutADescriptorIsOutOfSpace) {
  boost::asio::io_context context;
  ASSERT_TRUE(ListenTcp(context, "127.0.0.1:0").ok());
  const Status status = ListenWithoutDescriptors(context);
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace) << status;
  EXPECT_TRUE(ListenTcp(context, "127.0.0.1:0").ok());
}

TEST(TcpSocket, AContextThatWasNotUsedYetNeedsDescriptorsToo) {
  // UBSan opens a pipe to look at the type of an object, but only for the first one of its kind.
  boost::asio::io_context used;
  ASSERT_TRUE(ListenTcp(used, "127.0.0.1:0").ok());
  try {
    boost::asio::ip::make_address("no address");
    FAIL();
  } catch (const boost::system::system_error& error) {
    EXPECT_STRNE(error.what(), "");
  }

  boost::asio::io_context context;
  const Status status = ListenWithoutDescriptors(context);
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace) << status;
}

}  // namespace
}  // namespace lamina
