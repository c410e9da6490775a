#include "cost/layer_profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.h"

namespace lamina {
namespace layer_profile_test {

using ::testing::HasSubstr;

constexpr char kHeader[] =
    "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,emb_ms,input_"
    "layernorm_ms,attn_pre_proj_ms,attn_rope_"
    "ms,"
    "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_ms,add_"
    "ms\n";
// Before attention 1 + 2 + 3 = 6 ms at one row, 10 at 11 rows; behind it 4 + 5 + 6 + 7 + 8 + 2 * 9
// = 48 ms, 68.
constexpr char kRows[] =
    "32,8,4096,11008,11,1,99,2,4,4,4,5,6,7,8,19\n"
    "32,8,4096,11008,1,1,99,1,2,3,4,5,6,7,8,9\n"
    "32,8,4096,11008,1,2,99,100,100,100,100,100,100,100,100,100\n";

class LayerProfileTest : public ::testing::Test {
 protected:
  Result<LayerProfile> Load(const std::string& text, int tensor_parallel = 1) const {
    std::ofstream(folder_ / "p.csv") << text;
    return LayerProfile::Load(folder_ / "p.csv", tensor_parallel);
  }
  std::string ErrorOf(const std::string& text, int tensor_parallel = 1) const {
    const Status status = Load(text, tensor_parallel).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  }

  const TemporaryFolder folder_;
};

TEST_F(LayerProfileTest, TimesAreInterpolatedOverTheRows) {
  const Result<LayerProfile> profile = Load(std::string(kHeader) + kRows);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->shape(), (LayerProfile::Shape{32, 8, 4096, 11008}));
  EXPECT_DOUBLE_EQ(profile->BeforeAttentionSeconds(1), 6e-3);
  EXPECT_DOUBLE_EQ(profile->BeforeAttentionSeconds(6), 8e-3) << "half-way from 1 to 11";
  EXPECT_DOUBLE_EQ(profile->BeforeAttentionSeconds(11), 10e-3);
  EXPECT_DOUBLE_EQ(profile->AfterAttentionSeconds(0.5), 48e-3) << "below the first";
  EXPECT_DOUBLE_EQ(profile->AfterAttentionSeconds(11), 68e-3);
  EXPECT_DOUBLE_EQ(profile->AfterAttentionSeconds(22), 136e-3) << "in proportion beyond the last";
  EXPECT_DOUBLE_EQ(Load(std::string(kHeader) + kRows, 2)->BeforeAttentionSeconds(1), 300e-3)
      << "the rows of two workers";
}

TEST_F(LayerProfileTest, RowsWithAsManyTokensCountByTheirMean) {
  const Result<LayerProfile> profile =
      Load(std::string(kHeader) + kRows + "32,8,4096,11008,1,1,99,3,4,5,4,5,6,7,8,9\n");
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_DOUBLE_EQ(profile->BeforeAttentionSeconds(1), 9e-3);
}

TEST_F(LayerProfileTest, NoShapeAndNoCountIsZero) {
  const std::string row = "32,8,4096,11008,1,1,99,1,2,3,4,5,6,7,8,9\n",
                    columns[] = {"n_head", "n_kv_head", "n_embd", "n_expanded_embd"};
  size_t at = 0;
  for (const std::string& column : columns) {
    std::string zero = row;
    zero.replace(at, row.find(',', at) - at, "0");
    EXPECT_EQ(ErrorOf(kHeader + zero),
              folder_ / "p.csv" + ":2: '" + column + "' is '0': expected 1 or more");
    at = row.find(',', at) + 1;
  }
  EXPECT_THAT(ErrorOf(kHeader + row + "32,8,4096,11008,0.5,1,99,1,2,3,4,5,6,7,8,9\n"),
              HasSubstr(":3: 'num_tokens' is '0.5'"));
  EXPECT_THAT(ErrorOf(kHeader + row + "32,8,4096,11008,1,0,99,1,2,3,4,5,6,7,8,9\n"),
              HasSubstr("'num_tensor_parallel_workers'"));
}

TEST_F(LayerProfileTest, MistakesAreNamedWithFileAndLine) {
  const std::string path = folder_ / "p.csv";
  EXPECT_EQ(ErrorOf("n_head,n_embd\n1,2\n"), path + ":1: there is no column 'n_kv_head'");
  EXPECT_EQ(ErrorOf(std::string(kHeader) + kRows + "32,8,4096,11008,1,1,99,fast,2,3,4,5,6,7,8,9\n"),
            path + ":5: 'input_layernorm_ms' is 'fast': expected a number, 0 or more");
  EXPECT_EQ(ErrorOf(std::string(kHeader) + "32,8\n"),
            path + ":2: 'num_tensor_parallel_workers' is '': expected a number, 0 or more");
  EXPECT_EQ(ErrorOf(std::string(kHeader) + kRows + "40,8,4096,11008,1,1,99,1,2,3,4,5,6,7,8,9\n"),
            path + ":5: the shape of the model differs from the line before");
  EXPECT_EQ(ErrorOf(std::string(kHeader) + kRows, 4),
            path + ": no row has 4 tensor-parallel workers");
  EXPECT_EQ(ErrorOf(kHeader), path + ": no row has 1 tensor-parallel workers");
  EXPECT_EQ(LayerProfile::Load("/nonexistent/p.csv", 1).status().code(), StatusCode::kNotFound);
}

}  // namespace layer_profile_test
}  // namespace lamina
