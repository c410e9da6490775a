#include "kernels/cpu_features.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace lamina {
namespace {

TEST(CpuFeatures, ScalarAlwaysRunsAndAvx512ImpliesAvx2) {
  EXPECT_TRUE(CpuSupports(CpuIsa::kScalar));
  EXPECT_TRUE(CpuSupports(CpuIsa::kAvx2) || !CpuSupports(CpuIsa::kAvx512));
}

TEST(CpuFeatures, StartsWithTheBestUnlessAsked) {
  const char* asked = std::getenv("LAMINA_CPU_ISA");
  if (asked != nullptr) GTEST_SKIP() << "LAMINA_CPU_ISA is " << asked;
  const CpuIsa best = CpuSupports(CpuIsa::kAvx512) ? CpuIsa::kAvx512
                      : CpuSupports(CpuIsa::kAvx2) ? CpuIsa::kAvx2
                                                   : CpuIsa::kScalar;
  EXPECT_EQ(ActiveCpuIsa(), best);
}

TEST(CpuFeatures, CanBeSet) {
  const CpuIsa before = ActiveCpuIsa();
  SetCpuIsa(CpuIsa::kScalar);
  EXPECT_EQ(ActiveCpuIsa(), CpuIsa::kScalar);
  SetCpuIsa(before);
  EXPECT_EQ(ActiveCpuIsa(), before);
}

TEST(CpuFeatures, NamesAreThoseOfTheEnvironmentVariable) {
  EXPECT_EQ(CpuIsaName(CpuIsa::kScalar), "scalar");
  EXPECT_EQ(CpuIsaName(CpuIsa::kAvx2), "avx2");
  EXPECT_EQ(CpuIsaName(CpuIsa::kAvx512), "avx512");
}

}  // namespace
}  // namespace lamina
