// Offers of fabrics come from another process, by way of the manager. Whatever they say, Connect
// returns an error that is meant for people: nobody listens here.
#include "transport/ladder.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  auto fabric = lamina::OpenFabric("loopback");
  if (!fabric.ok()) std::abort();
  std::vector<std::unique_ptr<lamina::Fabric>> fabrics;
  fabrics.push_back(*std::move(fabric));
  lamina::Ladder ladder(std::move(fabrics));
  const std::string offers(reinterpret_cast<const char*>(bytes), size);
  const auto path = ladder.Connect(offers, {}, lamina::Deadline(lamina::TimePoint{}));
  if (path.ok() || path.status().message().empty()) std::abort();
  return 0;
}
