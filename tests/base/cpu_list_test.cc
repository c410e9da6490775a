#include "base/cpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

#include "base/worker_team.h"

namespace lamina {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CpuList, NumbersAndRangesInTheirOrder) {
  EXPECT_THAT(*ParseCpuList("0"), ElementsAre(0));
  EXPECT_THAT(*ParseCpuList("8,0-3"), ElementsAre(8, 0, 1, 2, 3));
  EXPECT_THAT(*ParseCpuList("5-5"), ElementsAre(5));
}

TEST(CpuList, OtherTextsAreRefused) {
  for (const char* text : {"", ",", "1,", ",1", "1,,2", "a", "1-", "-1", "3-1", "0-3,2", "1 2",
                           "0x3", "1-2-3", "1024", "99999999999"}) {
    const Result<std::vector<int>> cpus = ParseCpuList(text);
    EXPECT_EQ(cpus.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(cpus.status().message(), HasSubstr("no list of cores such as 0-3,8")) << text;
  }
}

TEST(CpuList, AThreadAndThoseThatItStartsRunThere) {
  std::thread bound([] {  // binding stays with the thread: not the test's own
    const int cpu = sched_getcpu();
    EXPECT_TRUE(RunOnCpus(std::to_string(cpu), 1).ok());
    std::thread started([cpu] {
      EXPECT_EQ(NumAllowedCores(), 1);
      EXPECT_EQ(sched_getcpu(), cpu);
    });
    started.join();
  });
  bound.join();
}

TEST(CpuList, MoreThreadsThanCoresAndCoresThatAreNotThereAreRefused) {
  const std::string here = std::to_string(sched_getcpu());
  EXPECT_THAT(RunOnCpus(here, 2).message(),
              HasSubstr("2 threads on the 1 cores of '" + here + "'"));
  const Status missing = RunOnCpus("1023", 0);
  EXPECT_EQ(missing.code(), StatusCode::kNotFound);
  EXPECT_THAT(missing.message(), HasSubstr("may not use core 1023"));
}

}  // namespace
}  // namespace lamina
