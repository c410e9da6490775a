#include "tiers/copy_link.h"

#include <fcntl.h>
#include <fmt/format.h>
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
  const int file = shm_open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return InternalError("cannot open the bus /dev/shm" + path + ": " + LastError());
  struct stat found {};
  void* mapped = MAP_FAILED;
  std::string wrong;
  if (fstat(file, &found) != 0 || found.st_uid != geteuid() || !S_ISREG(found.st_mode)) {
    wrong = "it is not a file of this user";
  } else if (ftruncate(file, sizeof(FreeAt)) != 0) {
    wrong = LastError();
  } else {
    mapped = mmap(nullptr, sizeof(FreeAt), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED) wrong = LastError();
  }
  close(file);
  if (!wrong.empty()) return InternalError("cannot use the bus /dev/shm" + path + ": " + wrong);
  static_assert(FreeAt::is_always_lock_free);  // or it would not work between processes
  return std::unique_ptr<SharedBus>(new SharedBus(static_cast<FreeAt*>(mapped)));
}

SharedBus::~SharedBus() { munmap(free_at_, sizeof(FreeAt)); }

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
