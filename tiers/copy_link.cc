#include "tiers/copy_link.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <system_error>

namespace lamina {
namespace {

int64_t Nanoseconds(TimePoint at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

std::string LastError() { return std::generic_category().message(errno); }

}  // namespace

Result<std::unique_ptr<SharedBus>> SharedBus::Open(const std::string& name) {
  const bool is_name = !name.empty() && name.size() <= 63 && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
  });
  if (!is_name)
    return InvalidArgument("a bus has the name '" + name +
                           "': expected up to 63 letters, digits and '-'");
  const std::string path = fmt::format("/lamina-bus-{}-{}", geteuid(), name);
  const auto failed = [&path](const std::string& why) {
    return InternalError("cannot use the bus /dev/shm" + path + ": " + why);
  };
  while (true) {
    const int file = shm_open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0) return failed(LastError());
    struct stat found {};
    std::string wrong;
    if (flock(file, LOCK_SH) != 0 || fstat(file, &found) != 0) {
      wrong = LastError();
    } else if (found.st_uid != geteuid() || !S_ISREG(found.st_mode)) {
      wrong = "it is not a file of this user";
    } else if (found.st_nlink == 0) {  // its last user has just left
      close(file);
      continue;
    } else if (ftruncate(file, sizeof(FreeAt)) != 0) {
      wrong = LastError();
    }
    void* const mapped =
        wrong.empty() ? mmap(nullptr, sizeof(FreeAt), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                      : MAP_FAILED;
    if (mapped == MAP_FAILED) {
      if (wrong.empty()) wrong = LastError();
      close(file);
      return failed(wrong);
    }
    static_assert(FreeAt::is_always_lock_free);  // or it would not work between processes
    return std::unique_ptr<SharedBus>(new SharedBus(path, file, static_cast<FreeAt*>(mapped)));
  }
}

SharedBus::~SharedBus() {
  munmap(free_at_, sizeof(FreeAt));
  // Nobody else has it if nobody else has locked it.
  if (flock(file_, LOCK_EX | LOCK_NB) == 0) shm_unlink(path_.c_str());
  close(file_);
}

// A process that is killed leaves at most the copies booked that it had begun.
TimePoint SharedBus::Book(TimePoint now, Clock::duration time) {
  const int64_t start = Nanoseconds(now);
  const int64_t cost =
      std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
  int64_t before = free_at_->load();
  int64_t done = 0;
  do {
    done = std::max(start, before) + cost;
  } while (!free_at_->compare_exchange_weak(before, done));
  return TimePoint(std::chrono::nanoseconds(done));
}

}  // namespace lamina
