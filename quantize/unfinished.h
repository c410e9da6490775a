// What a command makes, until it has its name.
#pragma once

#include <filesystem>

#include "base/status.h"

namespace lamina {

// A file or folder that is there only while it is made: what an earlier command left at this path
// is taken away first, and at the end what has not got its name. Thread: owner.
class Unfinished {
 public:
  explicit Unfinished(std::filesystem::path path);
  ~Unfinished();
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // Has all of it on the disk, so that a crash leaves no zeros under the name, and gives it the
  // name. kInvalidArgument if either cannot be done.
  Status Finish(const std::filesystem::path& name) const;

 private:
  void Remove() const;

  const std::filesystem::path path_;
};

}  // namespace lamina
