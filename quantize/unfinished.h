// What a command makes, until it has its name.
#pragma once

#include <filesystem>
#include <system_error>
#include <utility>

namespace lamina {

// A file or folder that is there only while it is made: what an earlier command left at this path
// is taken away first, and what this one has not renamed at the end.
class Unfinished {
 public:
  explicit Unfinished(std::filesystem::path path) : path_(std::move(path)) { Remove(); }
  ~Unfinished() { Remove(); }
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  void Remove() const {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }

  const std::filesystem::path path_;
};

}  // namespace lamina
