// Reads blocks of a file into memory, and writes them back, on a thread of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <thread>

#include "base/mutex.h"
#include "tiers/block_file.h"
#include "tiers/copy_engine.h"

namespace lamina {

// Thread: one owner.
class DiskCopier final : public CopyEngine {
 public:
  // `bytes_per_s`: it copies no faster than that, so that a disk has a known speed; 0: as fast as
  // the disk does.
  DiskCopier(std::shared_ptr<const BlockFile> file, double bytes_per_s);
  // Waits for the end of a read that is under way; what was begun besides is not done.
  ~DiskCopier() override;

  void SetRuns(const BlockRuns& runs) override { runs_ = runs; }
  void Start(int block, std::byte* to) override { Add({block, to, nullptr, RunsOf(block)}); }
  void StartBack(int block, const std::byte* from) override {
    Add({block, nullptr, from, RunsOf(block)});
  }
  bool OldestIsDone() override;
  Status FinishOldest() override;
  double seconds_per_byte() const override { return seconds_per_byte_; }

 private:
  struct Copy {
    int block = 0;
    std::byte* to = nullptr;
    const std::byte* from = nullptr;  // null: to `to`
    BlockRuns runs = {};
  };
  struct Ended {
    Status status;
    double seconds_per_byte = 0;
  };
  BlockRuns RunsOf(int block) const {
    return runs_.run_bytes > 0 ? runs_ : BlockRuns{file_->block_bytes(block)};
  }
  void Add(const Copy& copy);
  void Run();
  Status Make(const Copy& copy);
  // Whether there is a copy to make, which is left in the queue. False: the end.
  bool Await(Copy& copy);

  const std::shared_ptr<const BlockFile> file_;
  const double bytes_per_s_;
  BlockRuns runs_;
  double seconds_per_byte_ = 0;
  Mutex mutex_;
  CondVar changed_;
  bool stop_ GUARDED_BY(mutex_) = false;
  std::deque<Copy> begun_ GUARDED_BY(mutex_);   // the first one may be under way
  std::deque<Ended> ended_ GUARDED_BY(mutex_);  // and not waited for yet
  std::thread thread_;
};

}  // namespace lamina
