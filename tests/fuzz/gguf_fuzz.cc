// GGUF files are foreign bytes. Whatever they are, reading neither crashes nor gives a value or a
// tensor outside of the file; and whatever a header that can be read says, so it is with the
// configuration and the tokenizer that are made of it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "gguf/dequantize.h"
#include "gguf/gguf_header.h"
#include "gguf/gguf_model.h"
#include "model/gguf_config.h"
#include "text/gguf_tokenizer.h"

namespace {

void CheckInside(std::span<const std::byte> part, std::span<const std::byte> file) {
  if (part.data() < file.data() || part.data() + part.size() > file.data() + file.size())
    std::abort();
}

void CheckMessage(const lamina::Status& status) {
  if (!status.ok() && status.message().empty()) std::abort();
}

void CheckHeader(const lamina::GgufHeader& header, std::span<const std::byte> file) {
  for (const auto& [name, value] : header.values) {
    CheckInside(value.bytes, file);
    if (value.type == lamina::GgufType::kString && value.Strings().size() != value.count)
      std::abort();
    if (value.is_integer() && value.count > 0) (void)value.Integer(value.count - 1);
  }
  for (const lamina::GgufTensor& tensor : header.tensors) {
    CheckInside(tensor.data, file);
    if (tensor.row_bytes() * static_cast<size_t>(tensor.num_rows()) != tensor.data.size())
      std::abort();
    if (!tensor.info().is_read) continue;
    float block[256];
    lamina::Dequantize(static_cast<lamina::GgmlType>(tensor.type), tensor.data.data(), 1, block);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  const auto header = lamina::ParseGgufHeader(file);
  CheckMessage(header.status());
  if (!header.ok()) return 0;
  CheckHeader(*header, file);

  const int fd = memfd_create("gguf", 0);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string path = "/proc/self/fd/" + std::to_string(fd);
  if (const auto model = lamina::GgufModel::Open(path); model.ok()) {
    CheckMessage(lamina::ConfigOfGguf(**model).status());
    CheckMessage(lamina::RopeDivisorsOf(**model, 8).status());
    const auto tokenizer = lamina::LoadGgufTokenizer(path);
    CheckMessage(tokenizer.status());
    if (tokenizer.ok()) CheckMessage((*tokenizer)->Encode("Hello 12 <s>\n", true).status());
    CheckMessage(lamina::LoadGgufChatTemplate(path).status());
  } else {
    CheckMessage(model.status());
  }
  close(fd);
  return 0;
}
