// Who makes room when all places for connections are taken.
#include "api/connection_places.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace lamina {
namespace {

// Connections without sockets, in the order in which they came.
class ConnectionPlacesTest : public ::testing::Test {
 protected:
  struct Connection {
    bool closed = false;
    std::unique_ptr<ConnectionPlaces::Place> place;
  };

  Connection& Connect(const std::string& origin) {
    Connection& connection = *connections_.emplace_back(std::make_unique<Connection>());
    connection.place = std::make_unique<ConnectionPlaces::Place>(places_, origin, [&connection] {
      connection.closed = true;
      connection.place->Leave();
    });
    return connection;
  }

  ConnectionPlaces places_{4};
  std::vector<std::unique_ptr<Connection>> connections_;
};

TEST_F(ConnectionPlacesTest, TheLongestWaitOfTheOriginWithMostEnds) {
  Connection& other = Connect("10.0.0.2");
  Connection& busy = Connect("10.0.0.1");
  Connection& first = Connect("10.0.0.1");
  Connection& second = Connect("10.0.0.1");
  for (Connection* connection : {&other, &second, &first}) connection->place->BeginWaiting();
  Connection& newcomer = Connect("10.0.0.3");
  EXPECT_TRUE(second.closed);  // it began to wait before the first one
  EXPECT_FALSE(other.closed || busy.closed || first.closed);
  EXPECT_FALSE(newcomer.place->is_last());
}

TEST_F(ConnectionPlacesTest, WhatLeftOrWorksMakesNoRoom) {
  Connection& first = Connect("10.0.0.1");
  Connection& second = Connect("10.0.0.1");
  Connect("10.0.0.1");
  Connect("10.0.0.1");
  first.place->BeginWaiting();
  first.place->EndWaiting();
  EXPECT_TRUE(Connect("10.0.0.2").place->is_last());
  second.place->Leave();
  second.place->BeginWaiting();
  EXPECT_TRUE(Connect("10.0.0.2").place->is_last());  // the last place counts among the taken ones
  EXPECT_FALSE(first.closed || second.closed);
}

TEST_F(ConnectionPlacesTest, TheEldestLastPlaceMakesRoomForTheNext) {
  for (int i = 0; i < 4; ++i) Connect("10.0.0.1");
  std::vector<Connection*> last;
  for (int i = 0; i < 32; ++i) last.push_back(&Connect("10.0.0.2"));
  last[0]->place->BeginWaiting();  // no wait that ordinary places may be taken for
  EXPECT_TRUE(last[0]->place->is_last());
  EXPECT_FALSE(last[0]->closed);
  EXPECT_TRUE(Connect("10.0.0.3").place->is_last());
  EXPECT_TRUE(last[0]->closed);
  EXPECT_FALSE(last[1]->closed);
}

}  // namespace
}  // namespace lamina
