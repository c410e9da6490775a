#include "transport/mapping.h"

#include <sys/mman.h>

#include <string>

#include "transport/posix.h"

namespace lamina {
namespace {

Result<std::span<std::byte>> Map(int fd, int flags, size_t bytes) {
  if (bytes == 0) return std::span<std::byte>();  // mmap refuses 0 bytes
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED)
    return OutOfSpace(ErrnoText("mmap of " + std::to_string(bytes) + " bytes"));
  return std::span(static_cast<std::byte*>(memory), bytes);
}

class MappedBuffer final : public Buffer {
 public:
  explicit MappedBuffer(Mapping mapping) : mapping_(std::move(mapping)) {}
  std::span<std::byte> bytes() override { return mapping_.bytes(); }

 private:
  Mapping mapping_;
};

}  // namespace

Mapping::~Mapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Result<Mapping> Mapping::Anonymous(size_t bytes) {
  LAMINA_ASSIGN_OR_RETURN(const auto memory,
                          Map(-1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, bytes));
  return Mapping(memory);
}

Result<Mapping> Mapping::Shared(int fd, size_t bytes) {
  LAMINA_ASSIGN_OR_RETURN(const auto memory, Map(fd, MAP_SHARED, bytes));
  return Mapping(memory);
}

Result<std::unique_ptr<Buffer>> AllocateMappedBuffer(size_t bytes) {
  LAMINA_ASSIGN_OR_RETURN(Mapping mapping, Mapping::Anonymous(bytes));
  return std::unique_ptr<Buffer>(std::make_unique<MappedBuffer>(std::move(mapping)));
}

}  // namespace lamina
