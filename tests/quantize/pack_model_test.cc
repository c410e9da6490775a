// Packed files: what nodes read are the very bytes that they would have packed themselves, and a
// file that is not of the model, or that is broken, is as good as none.
#include "quantize/pack_model.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compute_node/compute_device.h"
#include "compute_node/packed_file.h"
#include "compute_node/weight_ring.h"
#include "compute_node/weights.h"
#include "model/model_files.h"
#include "quantize/safetensors_writer.h"
#include "splitter/weight_blocks.h"
#include "tests/support/families.h"
#include "tests/support/golden_prompts.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"

namespace lamina::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<WeightRef> MatricesOf(const LoadedModel& model) {
  std::map<std::string, WeightRef> matrices;
  for (const Op& op : model.part().ops) {
    for (const WeightRef& weight : op.weights) {
      if (RoleOf(op, weight) == WeightRole::kMatrix) matrices.emplace(weight.id(), weight);
    }
  }
  std::vector<WeightRef> all;
  for (auto& [id, weight] : matrices) all.push_back(std::move(weight));
  return all;
}

class PackModelTest : public ::testing::Test {
 protected:
  // A copy of the model's folder or GGUF file.
  std::string CopyOf(const std::string& model, const std::string& name = "") {
    std::string copy = folder_ / (name.empty() ? fs::path(model).filename().string() : name);
    fs::copy(model, copy, fs::copy_options::recursive);
    fs::remove(PackedPath(copy));
    return copy;
  }

  Result<PackedCounts> Pack(const std::string& model, int num_ranks = 1) {
    PackOptions options;
    options.model = model;
    options.num_ranks = num_ranks;
    return PackModel(options, team_);
  }

  std::unique_ptr<LoadedModel> Load(const std::string& model, const ModelShare& share = {}) {
    WeightOptions options;
    options.model_dir = model;
    options.share = share;
    Result<std::unique_ptr<LoadedModel>> loaded = LoadedModel::Load(options, team_);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? *std::move(loaded) : nullptr;
  }

  // Whether the matrices of `copy` are those of `model`, and how many of them were packed already.
  int64_t CountPacked(const std::string& model, const std::string& copy,
                      const ModelShare& share = {}) {
    const std::unique_ptr<LoadedModel> packs = Load(model, share), reads = Load(copy, share);
    if (packs == nullptr || reads == nullptr) return -1;
    EXPECT_EQ(packs->weight_bytes, reads->weight_bytes);
    EXPECT_EQ(packs->weights->num_packed(), 0);
    for (const WeightRef& weight : MatricesOf(*packs)) {
      const PackedWeights& ours = reads->weights->Matrix(weight);
      const PackedWeights& theirs = packs->weights->Matrix(weight);
      EXPECT_EQ(ours.format(), theirs.format()) << weight.id();
      EXPECT_EQ(ours.size_bytes(), theirs.size_bytes()) << weight.id();
      if (ours.size_bytes() != theirs.size_bytes()) return -1;
      EXPECT_EQ(std::memcmp(ours.data(), theirs.data(), static_cast<size_t>(ours.size_bytes())), 0)
          << weight.id();
    }
    return reads->weights->num_packed();
  }

  WorkerTeam team_{2};
  const TemporaryFolder folder_;
};

TEST_F(PackModelTest, MatricesOfEveryFamilyAndFormatHaveTheSameBytes) {
  std::vector<Family> all = Families();
  all.insert(all.end(), QuantizedFamilies().begin(), QuantizedFamilies().end());
  int num_without_all = 0;
  for (const Family& family : all) {
    SCOPED_TRACE(family.name);
    const std::string copy = CopyOf(family.dir);
    const Result<PackedCounts> counts = Pack(copy);
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(counts->path, copy + "/weights.packed");
    EXPECT_FALSE(fs::exists(counts->path + ".part"));
    EXPECT_EQ(CountPacked(family.dir, copy), counts->num_matrices);
    const auto num_all = std::ssize(MatricesOf(*Load(copy)));
    EXPECT_GT(counts->num_matrices, 0);
    num_without_all += counts->num_matrices < num_all;
  }
  // Those whose inputs name their groups.
  EXPECT_GT(num_without_all, 0);
  EXPECT_LT(num_without_all, std::ssize(QuantizedFamilies()) / 2);
}

TEST_F(PackModelTest, GgufFilesHaveTheirsBesideThem) {
  for (const char* name : {"llama31", "mixtral", "gpt-oss", "mxfp4"}) {
    SCOPED_TRACE(name);
    const std::string model = SourcePath("/tests/fixtures/gguf/") + name + ".gguf";
    const std::string copy = CopyOf(model);
    const Result<PackedCounts> counts = Pack(copy);
    ASSERT_TRUE(counts.ok()) << counts.status();
    EXPECT_EQ(counts->path, copy + ".packed");
    EXPECT_EQ(CountPacked(model, copy), counts->num_matrices);
  }
}

TEST_F(PackModelTest, SharesFindWhatWasPackedForThem) {
  const std::string model = TinyStoriesDir();
  const std::string copy = CopyOf(model);
  const Result<PackedCounts> whole = Pack(copy);
  ASSERT_TRUE(whole.ok()) << whole.status();
  for (const int stage : {0, 1}) EXPECT_GT(CountPacked(model, copy, {2, stage, 1, 0}), 0) << stage;
  for (const int rank : {0, 1}) {
    const ModelShare share{1, 0, 2, rank};
    // Those that the ranks have in common.
    EXPECT_LE(CountPacked(model, copy, share), 1) << rank;
  }

  const Result<PackedCounts> ranks = Pack(copy, 2);
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  int64_t num_packed = 0;
  for (const int rank : {0, 1}) {
    const ModelShare share{1, 0, 2, rank};
    const int64_t packed = CountPacked(model, copy, share);
    EXPECT_EQ(packed, std::ssize(MatricesOf(*Load(copy, share))));
    num_packed += packed;
  }
  EXPECT_EQ(ranks->num_matrices, num_packed);
  // The panels of both together are those of the whole; what is larger are the ends of pages.
  EXPECT_NEAR(static_cast<double>(ranks->bytes), static_cast<double>(whole->bytes),
              static_cast<double>(2 * ranks->num_matrices * kPackedAlignment));
}

// Of a folder with one file of weights.
std::string SourceOf(const std::string& model) {
  return PackedSourceOf({model + "/model.safetensors", model + "/config.json"});
}

void MakeNewer(const std::string& file) {
  fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
}

// How many open files there are with this at the end of their names.
int64_t CountOpen(const std::string& end) {
  int64_t count = 0;
  for (const fs::directory_entry& file : fs::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += fs::read_symlink(file.path(), gone).string().ends_with(end);
  }
  return count;
}

TEST_F(PackModelTest, WeightsThatLieOutsideAreReadInPlaceOnTheirOwnDisk) {
  const std::string model = TinyStoriesDir();
  const std::string copy = CopyOf(model);
  ASSERT_TRUE(Pack(copy).ok());
  WeightOptions options;
  options.model_dir = copy;
  const auto check = [&](const OffloadOptions& outside, bool in_place) {
    const std::unique_ptr<LoadedModel> packs = Load(model, options.share);
    SCOPED_TRACE(outside.folder + ", portion " + std::to_string(outside.portion));
    const int64_t nameless = CountOpen(" (deleted)");
    const Result<std::unique_ptr<LoadedModel>> loaded = LoadedModel::Load(options, team_, outside);
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    EXPECT_EQ(CountOpen("/weights.packed"), in_place ? 1 : 0);
    EXPECT_EQ(CountOpen(" (deleted)") - nameless, in_place ? 0 : 1);
    WeightRing& ring = *(*loaded)->weights->ring();
    const auto slices = SlicesOfMatrices((*loaded)->sliced, (*loaded)->slices());
    int num_compared = 0;
    for (const WeightRef& weight : MatricesOf(*packs)) {
      const auto slice = slices.find(weight.id());
      if (slice == slices.end()) continue;
      ring.Enter(slice->second);
      const PackedWeights& ours = (*loaded)->weights->Matrix(weight);
      EXPECT_EQ(std::memcmp(ours.data(), packs->weights->Matrix(weight).data(),
                            static_cast<size_t>(ours.size_bytes())),
                0)
          << weight.id();
      ring.Leave(slice->second);
      ++num_compared;
    }
    EXPECT_GT(num_compared, 0);
  };
  OffloadOptions outside{.interval = 1, .folder = folder_.path(), .buffers = 1, .poison = true};
  check(outside, true);
  outside.interval = 2;
  check(outside, true);
  outside.portion = 0.5;
  check(outside, true);
  outside.portion = 1;
  outside.interval = 1;
  options.share = {2, 1, 1, 0};
  check(outside, true);
  options.share = {1, 0, 2, 1};
  check(outside, false);  // not packed for ranks
  ASSERT_TRUE(Pack(copy, 2).ok());
  check(outside, true);
  outside.folder = "/dev/shm";  // another disk
  check(outside, false);
}

TEST_F(PackModelTest, AChangedModelIsReadAnew) {
  const std::string model = TinyStoriesDir();
  const std::string copy = CopyOf(model);
  ASSERT_TRUE(Pack(copy).ok());
  // Of no weights.
  fs::last_write_time(copy + "/tokenizer.json", fs::file_time_type::clock::now());
  EXPECT_GT(CountPacked(model, copy), 0);
  for (const char* name : {"config.json", "model.safetensors"}) {
    const std::string file = copy + "/" + name;
    MakeNewer(file);
    EXPECT_EQ(CountPacked(model, copy), 0) << name;
    const Result<std::unique_ptr<PackedFile>> opened = PackedFile::Open(copy, SourceOf(copy));
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(opened.status().message(), HasSubstr("weights.packed was made of other files"));
    ASSERT_TRUE(Pack(copy).ok());
    EXPECT_GT(CountPacked(model, copy), 0) << name;
  }
}

TEST_F(PackModelTest, EveryFileOfWeightsIsLookedAt) {
  const std::string gguf = SourcePath("/tests/fixtures/gguf/llama31.gguf");
  const std::string named = CopyOf(gguf, "my model.v1 Q8.gguf");
  ASSERT_TRUE(Pack(named).ok());
  EXPECT_GT(CountPacked(gguf, named), 0);
  MakeNewer(named);
  EXPECT_EQ(CountPacked(gguf, named), 0);

  // Files that an index names, in a folder and with a name of its own.
  const std::string model = TinyStoriesDir(), copy = CopyOf(model);
  const std::string shard = copy + "/of weights/all of them";
  fs::create_directory(copy + "/of weights");
  fs::rename(copy + "/model.safetensors", shard);
  nlohmann::json index;
  for (const std::string& name : (*Checkpoint::Open(model))->names())
    index["weight_map"][name] = "of weights/all of them";
  WriteFile(copy + "/model.safetensors.index.json", index.dump());
  ASSERT_TRUE(Pack(copy).ok());
  EXPECT_GT(CountPacked(model, copy), 0);
  MakeNewer(shard);
  EXPECT_EQ(CountPacked(model, copy), 0);
}

// Else a manager would take the model for another one, and drop what nodes have of it.
TEST_F(PackModelTest, TheModelIsTheSameAfterIt) {
  const std::string copy = CopyOf(TinyStoriesDir());
  const std::vector<std::string> before = DescribeModelFiles(copy);
  ASSERT_TRUE(Pack(copy).ok());
  WriteFile(copy + "/weights.packed.part", "of a command that was killed");
  EXPECT_EQ(DescribeModelFiles(copy), before);
}

TEST_F(PackModelTest, OneCommandAtATimePacksAModel) {
  const std::string copy = CopyOf(TinyStoriesDir());
  const int other = open(copy.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(Pack(copy).status().code(), StatusCode::kTryAgain);
  close(other);
  EXPECT_TRUE(Pack(copy).ok());
}

// Other bytes than the last version's would be taken from its files: count kLayout in
// packed_file.cc up, and write the new number here.
TEST_F(PackModelTest, TheBytesAreThoseOfLayoutOne) {
  uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  const auto add = [&](const void* data, int64_t size) {
    const auto* const bytes = static_cast<const unsigned char*>(data);
    for (int64_t i = 0; i < size; ++i) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  };
  std::vector<std::string> models = {CopyOf(TinyStoriesDir()),
                                     SourcePath("/tests/fixtures/gguf/mixtral.gguf")};
  for (const Family& family : QuantizedFamilies()) models.push_back(family.dir);
  for (const std::string& model : models) {
    const std::unique_ptr<LoadedModel> loaded = Load(model);
    for (const WeightRef& weight : MatricesOf(*loaded)) {
      const PackedWeights& matrix = loaded->weights->Matrix(weight);
      const std::string name = PackedName(weight, matrix.format());
      add(name.data(), std::ssize(name));
      add(matrix.data(), matrix.size_bytes());
    }
  }
  EXPECT_EQ(hash, 3305106098535124559u);
}

TEST_F(PackModelTest, BrokenFilesAreAsGoodAsNone) {
  const std::string model = TinyStoriesDir();
  const std::string copy = CopyOf(model), path = copy + "/weights.packed";
  const Result<PackedCounts> counts = Pack(copy);
  ASSERT_TRUE(counts.ok()) << counts.status();
  const auto size = fs::file_size(path);
  for (const uintmax_t shorter :
       {uintmax_t{0}, uintmax_t{7}, uintmax_t{5000}, size / 2, size - 1}) {
    fs::resize_file(path, shorter);
    EXPECT_EQ(PackedFile::Open(copy, SourceOf(copy)).status().code(), StatusCode::kCorrupt)
        << shorter;
    EXPECT_EQ(CountPacked(model, copy), 0) << shorter;
    ASSERT_TRUE(Pack(copy).ok());
  }
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_EQ(CountPacked(model, copy), 0);
  fs::remove(path);

  // Well-formed files of somebody who does not know what kernels need.
  const std::unique_ptr<LoadedModel> packs = Load(model);
  const WeightRef weight = MatricesOf(*packs)[0];
  const PackedWeights& matrix = packs->weights->Matrix(weight);
  const std::string name = PackedName(weight, matrix.format());
  const int64_t whole = (matrix.size_bytes() + kPackedAlignment - 1) / kPackedAlignment;
  struct Hostile {
    const char* what;
    int64_t bytes;
    size_t alignment;
    std::string source;
    int64_t num_packed;
  };
  const std::string source = SourceOf(copy);
  for (const Hostile& hostile : std::vector<Hostile>{
           {"as it should be", whole * kPackedAlignment, kPackedAlignment, source, 1},
           {"too short", (whole - 1) * kPackedAlignment, kPackedAlignment, source, 0},
           {"empty", 0, kPackedAlignment, source, 0},
           {"no whole pages", matrix.size_bytes() + 8, kPackedAlignment, source, 0},
           {"another beginning", whole * kPackedAlignment, 8, source, 0},
           {"another layout", whole * kPackedAlignment, kPackedAlignment, "x" + source, 0},
           {"no source", whole * kPackedAlignment, kPackedAlignment, "", 0}}) {
    SCOPED_TRACE(hostile.what);
    std::vector<SafetensorsWriter::Tensor> tensors = {
        {name, "U8", {hostile.bytes}, static_cast<uint64_t>(hostile.bytes)}};
    if (!hostile.source.empty()) {
      tensors.push_back({kPackedSource, "U8", {std::ssize(hostile.source)}, hostile.source.size()});
    }
    Result<SafetensorsWriter> writer = SafetensorsWriter::Create(path, tensors, hostile.alignment);
    ASSERT_TRUE(writer.ok()) << writer.status();
    std::vector<std::byte> panels(
        static_cast<size_t>(std::max(hostile.bytes, matrix.size_bytes())));
    std::memcpy(panels.data(), matrix.data(), static_cast<size_t>(matrix.size_bytes()));
    panels.resize(static_cast<size_t>(hostile.bytes));
    ASSERT_TRUE(writer->Write(panels).ok());
    ASSERT_TRUE(writer->Write(std::as_bytes(std::span(hostile.source))).ok());
    ASSERT_TRUE(writer->Close().ok());
    EXPECT_EQ(CountPacked(model, copy), hostile.num_packed);
  }
}

TEST_F(PackModelTest, WhatCannotBePackedLeavesNothingBehind) {
  EXPECT_EQ(Pack(folder_ / "nowhere").status().code(), StatusCode::kNotFound);
  const std::string copy = CopyOf(TinyStoriesDir());
  EXPECT_EQ(Pack(copy, 3).status().code(), StatusCode::kInvalidArgument);
  fs::create_directories(copy + "/weights.packed/full");
  const Result<PackedCounts> counts = Pack(copy);
  EXPECT_THAT(counts.status().message(), HasSubstr(copy + "/weights.packed cannot be made: "));
  EXPECT_FALSE(fs::exists(copy + "/weights.packed.part"));
  fs::remove_all(copy + "/weights.packed");
  fs::resize_file(copy + "/model.safetensors", 10);
  EXPECT_EQ(Pack(copy).status().code(), StatusCode::kCorrupt);
  EXPECT_FALSE(fs::exists(copy + "/weights.packed.part"));
}

}  // namespace
}  // namespace lamina::testing
