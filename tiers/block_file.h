// Blocks of bytes in a file: in one that no other process sees and that goes with this one, or in a
// part of one that is there already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace lamina {

// Thread: writes to distinct places, and reads of what was written, may run at the same time.
class BlockFile {
 public:
  // Of places and sizes in the file and in memory, so that the disk reads them straight into memory
  // and the system keeps no second copy.
  static constexpr int64_t kAlignment = 4096;

  // Makes the file in this folder, with room for blocks of these sizes. kInvalidArgument if the
  // folder cannot have such a file, kOutOfSpace if the disk has less room (the message has both
  // figures).
  static Result<std::unique_ptr<BlockFile>> Create(const std::string& folder,
                                                   const std::vector<int64_t>& block_bytes);
  // Blocks that lie in this file, for Read alone. kInvalidArgument if it cannot be opened or ends
  // before one of them does. `name` is what errors call it. REQUIRES: the numbers are multiples of
  // kAlignment.
  struct Place {
    int64_t begin = 0, bytes = 0;
  };
  static Result<std::unique_ptr<BlockFile>> OpenPlaces(const std::string& path,
                                                       const std::string& name,
                                                       std::vector<Place> places);
  ~BlockFile();
  BlockFile(const BlockFile&) = delete;
  BlockFile& operator=(const BlockFile&) = delete;

  // Writes or reads `size` bytes of a block from `offset` on. kInternal, with the file and the
  // system's reason, if the disk fails. REQUIRES: all three, and the address, are multiples of
  // kAlignment, and lie within the block, whose end is rounded up to one.
  Status Write(int block, int64_t offset, const std::byte* from, int64_t size) const;
  Status Read(int block, int64_t offset, std::byte* to, int64_t size) const;

  int64_t block_bytes(int block) const { return places_[static_cast<size_t>(block)].bytes; }
  // False: the folder's file system does not let reads pass by the system's cache, so what lies
  // outside may take memory all the same, until others need it.
  bool is_direct() const { return is_direct_; }

 private:
  BlockFile(std::string where, int fd, bool is_direct, std::vector<Place> places);
  // Calls call(done), which moves bytes from there on and returns how many as pread does, until all
  // are.
  template <typename Call>
  Status Transfer(const char* what, int64_t size, const Call& call) const;

  const std::string where_;  // for errors
  const int fd_;
  const bool is_direct_;
  const std::vector<Place> places_;  // of each block
};

}  // namespace lamina
