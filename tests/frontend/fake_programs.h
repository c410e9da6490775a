// A temporary folder with fake_daemon.py under the names of the lamina programs, and free ports.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lamina {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string text = (std::filesystem::temp_directory_path() / "lamina-test-XXXXXX").string();
    EXPECT_NE(mkdtemp(text.data()), nullptr);
    path_ = text;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void MakeFakePrograms(const std::string& bin_dir) {
  std::filesystem::create_directories(bin_dir);
  for (const char* name : {"lamina", "lamina-memory-node", "lamina-compute-node"}) {
    std::filesystem::create_symlink(LAMINA_SOURCE_DIR "/tests/frontend/fake_daemon.py", bin_dir + "/" + name);
  }
}

inline void WriteFile(const std::string& path, const std::string& text, bool executable = false) {
  std::ofstream(path) << text;
  if (executable) std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

inline int FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  close(fd);
  return ntohs(address.sin_port);
}

}  // namespace lamina
