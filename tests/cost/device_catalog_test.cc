#include "cost/device_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina {
namespace {

using ::testing::HasSubstr;

constexpr char kSmall[] = R"(version: 1
devices:
- name: Big
  bf16_tflops: 300
  memory: 40GB
  bandwidth_gb_per_s: 2000
  bandwidth_efficiency: 0.5
  price_usd: 100
  mfu: [{batch: 16, mfu: 0.2}, {batch: 256, mfu: 0.6}]
  source: nobody
- {name: Small, bf16_tflops: 1, memory: 1GiB, bandwidth_gb_per_s: 10, mfu: [{batch: 1, mfu: 1}], source: nobody}
)";

std::string ErrorOf(const std::string& from, const std::string& to) {
  std::string text = kSmall;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  const Result<DeviceCatalog> catalog =
      DeviceCatalog::Parse(text.replace(at, from.size(), to), "d.yaml");
  EXPECT_EQ(catalog.status().code(), StatusCode::kInvalidArgument) << to;
  return catalog.status().message();
}

TEST(DeviceCatalog, FiguresAreRead) {
  const Result<DeviceCatalog> catalog = DeviceCatalog::Parse(kSmall, "d.yaml");
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  const Result<DeviceSpec> big = catalog->Find("Big");
  ASSERT_TRUE(big.ok());
  EXPECT_EQ(big->memory_bytes, 40'000'000'000);
  EXPECT_EQ(big->peak_flops_per_s(), 300e12);
  EXPECT_EQ(big->reached_bytes_per_s(), 1000e9);
  EXPECT_EQ(big->price_usd, 100);
  EXPECT_EQ(catalog->Find("Small")->bandwidth_efficiency, 1) << "the default";
  EXPECT_EQ(catalog->devices().size(), 2u);
}

TEST(DeviceCatalog, UtilisationIsLinearInTheLogarithmOfTheBatch) {
  const DeviceSpec big = *DeviceCatalog::Parse(kSmall, "d.yaml")->Find("Big");
  EXPECT_DOUBLE_EQ(big.Mfu(1), 0.2);
  EXPECT_DOUBLE_EQ(big.Mfu(16), 0.2);
  EXPECT_DOUBLE_EQ(big.Mfu(64), 0.4) << "64 is half-way from 16 to 256";
  EXPECT_DOUBLE_EQ(big.Mfu(256), 0.6);
  EXPECT_DOUBLE_EQ(big.Mfu(4096), 0.6);
}

TEST(DeviceCatalog, AttentionHasAUtilisationOfItsOwn) {
  std::string text = kSmall;
  text.insert(text.find("  source"),
              "  attention_mfu: [{batch: 1, mfu: 0.1}, {batch: 100, mfu: 0.3}]\n");
  const Result<DeviceCatalog> catalog = DeviceCatalog::Parse(text, "d.yaml");
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_DOUBLE_EQ(catalog->Find("Big")->AttentionMfu(10), 0.2);
  EXPECT_DOUBLE_EQ(catalog->Find("Big")->Mfu(64), 0.4);
  EXPECT_DOUBLE_EQ(catalog->Find("Small")->AttentionMfu(10), 1)
      << "without one: that of matrix products";
}

TEST(DeviceCatalog, MistakesAreNamedWithFileAndLine) {
  EXPECT_EQ(ErrorOf("  bf16_tflops: 300\n", ""), "d.yaml:3: device 'Big' needs 'bf16_tflops'");
  EXPECT_EQ(ErrorOf("bandwidth_gb_per_s: 2000", "bandwidth_gb_per_s: fast"),
            "d.yaml:6: 'bandwidth_gb_per_s' is 'fast': expected a number, 0 or more");
  EXPECT_EQ(ErrorOf("bandwidth_gb_per_s: 2000", "bandwidth_gb_per_s: 0"),
            "d.yaml:6: 'bandwidth_gb_per_s' must be more than 0");
  EXPECT_EQ(ErrorOf("bandwidth_efficiency: 0.5", "bandwidth_efficiency: 2"),
            "d.yaml:7: 'bandwidth_efficiency' must be more than 0 and at most 1");
  EXPECT_EQ(ErrorOf("{batch: 256, mfu: 0.6}", "{batch: 8, mfu: 0.6}"),
            "d.yaml:9: the batches of 'mfu' must ascend");
  EXPECT_EQ(ErrorOf("mfu: [{batch: 1, mfu: 1}]", "mfu: []"),
            "d.yaml:11: device 'Small' needs at least one point of 'mfu'");
  EXPECT_EQ(ErrorOf("name: Small", "name: Big"),
            "d.yaml:11: there are two devices with the name 'Big'");
  EXPECT_THAT(ErrorOf("price_usd: 100", "price: 100"),
              HasSubstr("d.yaml:8: unknown key 'price' under device 'Big'; known keys: "));
  EXPECT_EQ(ErrorOf("version: 1", "version: 2"), "d.yaml:1: 'version' is '2': expected 1");
}

TEST(DeviceCatalog, AProfileIsReadWhenItsDeviceIsAskedFor) {
  const TemporaryFolder folder;
  std::string text = kSmall;
  text.replace(text.find("source: nobody"), 14,
               "profile: big.csv\n  tensor_parallel: 2\n  source: nobody");
  std::ofstream(folder / "d.yaml") << text;
  const Result<DeviceCatalog> catalog = DeviceCatalog::Load(folder / "d.yaml");
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  EXPECT_FALSE(catalog->Find("Small")->profile);
  EXPECT_EQ(catalog->Find("Big").status().message(),
            "profile " + folder / "big.csv" + ": no such file");
  std::ofstream(folder / "big.csv")
      << "n_head,n_kv_head,n_embd,n_expanded_embd,num_tokens,num_tensor_parallel_workers,input_"
         "layernorm_ms,attn_pre_proj_ms,attn_rope_ms,"
         "attn_post_proj_ms,post_attention_layernorm_ms,mlp_up_proj_ms,mlp_act_ms,mlp_down_proj_ms,"
         "add_ms\n"
         "32,8,4096,11008,1,2,1,1,1,1,1,1,1,1,1\n";
  const Result<DeviceSpec> big = catalog->Find("Big");
  ASSERT_TRUE(big.ok()) << big.status();
  EXPECT_DOUBLE_EQ(big->profile->BeforeAttentionSeconds(1), 3e-3);
}

TEST(DeviceCatalog, ACatalogCanExtendAnother) {
  const TemporaryFolder folder;
  std::ofstream(folder / "base.yaml") << kSmall;
  std::ofstream(folder / "mine.yaml") << "version: 1\nextends: base.yaml\ndevices:\n"
                                         "- {name: Big, price_usd: 70, price_source: an offer}\n"
                                         "- {name: New, bf16_tflops: 5, fp32_tflops: 2, memory: "
                                         "2GB, bandwidth_gb_per_s: 3, mfu: [{batch: 1, mfu: "
                                         "0.5}], source: me}\n";
  const Result<DeviceCatalog> catalog = DeviceCatalog::Load(folder / "mine.yaml");
  ASSERT_TRUE(catalog.ok()) << catalog.status();
  ASSERT_EQ(catalog->devices().size(), 3u);
  const DeviceSpec big = *catalog->Find("Big");
  EXPECT_EQ(big.price_usd, 70);
  EXPECT_EQ(big.price_source, "an offer");
  EXPECT_EQ(big.bandwidth_gb_per_s, 2000) << "what it does not give stays";
  EXPECT_EQ(big.mfu.size(), 2u);
  EXPECT_EQ(catalog->Find("Small")->price_usd, 0);
  const DeviceSpec fresh = *catalog->Find("New");
  EXPECT_EQ(fresh.peak_flops_per_s(2), 5e12);
  EXPECT_EQ(fresh.peak_flops_per_s(4), 2e12);
  EXPECT_EQ(big.peak_flops_per_s(4), 300e12) << "not known: as on two bytes";

  std::ofstream(folder / "circle.yaml") << "version: 1\nextends: circle.yaml\ndevices: []\n";
  EXPECT_THAT(DeviceCatalog::Load(folder / "circle.yaml").status().message(),
              HasSubstr("catalogs extend each other in a circle"));
  std::ofstream(folder / "lost.yaml") << "version: 1\nextends: gone.yaml\ndevices: []\n";
  const Status lost = DeviceCatalog::Load(folder / "lost.yaml").status();
  EXPECT_EQ(lost.code(), StatusCode::kNotFound);
  EXPECT_EQ(lost.message(),
            folder / "lost.yaml" + ":2: device catalog " + folder / "gone.yaml" + ": no such file");
  std::ofstream(folder / "unknown.yaml")
      << "version: 1\nextends: base.yaml\ndevices:\n- {name: Bigg, price_usd: 70}\n";
  EXPECT_THAT(DeviceCatalog::Load(folder / "unknown.yaml").status().message(),
              HasSubstr("device 'Bigg' needs 'bf16_tflops'"));
}

// Whoever reads a price can see how old it is and where it is from.
TEST(DeviceCatalog, EveryShippedPriceHasASourceWithItsYear) {
  for (const char* file : {"/configs/devices.yaml", "/configs/devices-2026.yaml"}) {
    const Result<DeviceCatalog> catalog = DeviceCatalog::Load(std::string(SourcePath()) + file);
    ASSERT_TRUE(catalog.ok()) << catalog.status();
    for (const DeviceSpec& device : catalog->devices()) {
      if (device.price_usd == 0 && device.price_per_hour == 0) continue;
      EXPECT_THAT(device.price_source, ::testing::AnyOf(HasSubstr("202"), HasSubstr("that of ")))
          << file << " " << device.name;
    }
  }
}

TEST(DeviceCatalog, AnUnknownNameListsTheKnownOnes) {
  const Status status = DeviceCatalog::Parse(kSmall, "d.yaml")->Find("Huge").status();
  EXPECT_EQ(status.code(), StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "device catalog d.yaml has no 'Huge'; it has: Big, Small");
}

}  // namespace
}  // namespace lamina
