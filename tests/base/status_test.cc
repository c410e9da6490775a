#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <sstream>

namespace lamina {
namespace {

TEST(Status, DefaultIsOk) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_EQ(status.ToString(), "ok");
  EXPECT_EQ(OkStatus().code(), StatusCode::kOk);
}

TEST(Status, EachMakerHasItsCodeAndEachCodeItsName) {
  const std::pair<Status, std::string_view> cases[] = {
      {InvalidArgument("m"), "invalid argument"},
      {NotFound("m"), "not found"},
      {OutOfSpace("m"), "out of space"},
      {TryAgain("m"), "try again"},
      {PeerLost("m"), "peer lost"},
      {TimedOut("m"), "timed out"},
      {Corrupt("m"), "corrupt"},
      {Unimplemented("m"), "not implemented"},
      {InternalError("m"), "internal error"},
  };
  for (const auto& [status, name] : cases) {
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(CodeName(status.code()), name);
    EXPECT_EQ(status.message(), "m");
    std::ostringstream out;
    out << status;
    EXPECT_EQ(out.str(), std::string(name) + ": m");
  }
}

TEST(Status, ContextGoesInFrontAndLeavesOkAlone) {
  const Status status = NotFound("no such file").WithContext("weights");
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "weights: no such file");
  EXPECT_TRUE(OkStatus().WithContext("weights").ok());
  EXPECT_EQ(OkStatus().WithContext("weights").message(), "");
}

Result<int> Half(int x) {
  if (x % 2 != 0) return InvalidArgument("odd");
  return x / 2;
}

Result<int> Quarter(int x) {
  LAMINA_ASSIGN_OR_RETURN(const int half, Half(x));
  LAMINA_ASSIGN_OR_RETURN(const int quarter, Half(half));
  return quarter;
}

Status CheckEven(int x, int& calls) {
  LAMINA_RETURN_IF_ERROR(Half(x).status());
  ++calls;
  return OkStatus();
}

TEST(Result, HoldsAValueOrAStatus) {
  EXPECT_TRUE(Half(4).ok());
  EXPECT_EQ(Half(4).value(), 2);
  EXPECT_TRUE(Half(4).status().ok());
  EXPECT_FALSE(Half(3).ok());
  EXPECT_EQ(Half(3).status().code(), StatusCode::kInvalidArgument);
}

TEST(Result, MacrosPassValuesOnAndReturnErrors) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).status().message(), "odd");
  EXPECT_EQ(Quarter(5).status().message(), "odd");
  int calls = 0;
  EXPECT_FALSE(CheckEven(1, calls).ok());
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(CheckEven(2, calls).ok());
  EXPECT_EQ(calls, 1);
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(**result, 7);
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

}  // namespace
}  // namespace lamina
