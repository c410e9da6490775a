#include "transport/tcp_socket.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/asio/io_context.hpp>

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
  boost::asio::io_context context;
  const Status status = ListenWithoutDescriptors(context);
  EXPECT_EQ(status.code(), StatusCode::kOutOfSpace) << status;
}

}  // namespace
}  // namespace lamina
