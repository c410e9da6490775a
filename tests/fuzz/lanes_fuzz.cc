// Plays a peer that writes foreign bytes into the window of one end and announces foreign messages.
// The lanes must hand out the messages that stand in order, each once, from inside their area, and
// lose a peer that announces what cannot be.
#include "wire/lanes.h"

#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace {

using lamina::Event;
using lamina::MessageKind;
using lamina::Notification;
using lamina::Status;

void Require(bool holds) {
  if (!holds) std::abort();
}

// What the lanes hold of the connection: what was queued comes out of Poll.
class ForeignEndpoint final : public lamina::Endpoint {
 public:
  ForeignEndpoint(uint64_t window_bytes, uint64_t peer_bytes)
      : window_(window_bytes), peer_window_(peer_bytes) {}

  void Announce(uint32_t value) {
    events_.push_back({.kind = Event::Kind::kNotification, .value = value});
  }

  Status Post(std::span<const lamina::WriteOp> ops, std::optional<uint32_t>, uint64_t) override {
    for (const lamina::WriteOp& op : ops)
      Require(op.peer_offset + op.source.size() <= peer_window_.size());
    return lamina::OkStatus();
  }
  size_t Poll(std::span<Event> out) override {
    size_t count = 0;
    for (; count < out.size() && !events_.empty(); ++count) {
      out[count] = events_.front();
      events_.pop_front();
    }
    return count;
  }
  std::span<std::byte> window() override { return window_; }
  std::span<std::byte> peer_window() override { return peer_window_; }
  uint64_t peer_window_bytes() const override { return peer_window_.size(); }
  const std::string& peer_hello() const override { return name_; }
  const std::string& peer_name() const override { return name_; }
  std::string last_error() const override { return ""; }

 private:
  std::vector<std::byte> window_, peer_window_;
  std::deque<Event> events_;
  const std::string name_ = "foreign";
};

// A message in the window, as a correct peer writes it but for what `data` says.
void WriteMessage(FuzzedDataProvider& data, std::span<std::byte> window, const lamina::Lane& lane) {
  const uint64_t offset =
      lane.offset + data.ConsumeIntegralInRange<uint64_t>(0, lane.depth - 1) * lane.area_bytes;
  const std::string payload = data.ConsumeRandomLengthString(64);
  const std::span<std::byte> area = window.subspan(offset, lane.area_bytes);
  std::memcpy(area.data() + sizeof(lamina::MessageHeader), payload.data(), payload.size());
  lamina::MessageHeader header{.kind = lane.kind,
                               .number = data.ConsumeIntegralInRange<uint32_t>(0, 20)};
  header = Seal(header, area.subspan(sizeof(header), payload.size()), data.ConsumeBool());
  if (data.ConsumeBool()) header.payload_bytes = data.ConsumeIntegral<uint32_t>();
  std::memcpy(area.data(), &header, sizeof(header));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  FuzzedDataProvider data(bytes, size);
  const lamina::WireShape wire{
      2, 1, 8, lamina::DType::kBF16, 3, 2, lamina::DType::kF32, data.ConsumeBool()};
  const std::vector<lamina::Lane> to_memory = lamina::DecodeLanes(wire),
                                  to_compute = lamina::ReplyLanes(wire),
                                  between = lamina::ContextLanes(2, 100, 50);
  const int role = data.ConsumeIntegralInRange(0, 2);
  const std::vector<lamina::Lane>& incoming = role == 0   ? to_memory
                                              : role == 1 ? to_compute
                                                          : between;
  const std::vector<lamina::Lane>& outgoing = role == 0   ? to_compute
                                              : role == 1 ? to_memory
                                                          : between;
  auto fabric = lamina::OpenFabric("loopback");
  Require(fabric.ok());
  auto owned = std::make_unique<ForeignEndpoint>(WindowBytes(incoming), WindowBytes(outgoing));
  ForeignEndpoint& endpoint = *owned;
  auto created = lamina::Lanes::Create(
      **fabric, std::move(owned), outgoing, incoming,
      {.payload_checksum = data.ConsumeBool() ? lamina::Switch::kOn : lamina::Switch::kOff});
  Require(created.ok());
  lamina::Lanes& lanes = **created;

  const auto any_lane = [&](const std::vector<lamina::Lane>& table) -> const lamina::Lane& {
    return table[data.ConsumeIntegralInRange<size_t>(0, table.size() - 1)];
  };
  std::map<std::pair<MessageKind, uint32_t>, int> waiting;  // seen and not taken
  while (data.remaining_bytes() > 0) {
    switch (data.ConsumeIntegralInRange(0, 5)) {
      case 0: WriteMessage(data, endpoint.window(), any_lane(incoming)); break;
      case 1: endpoint.Announce(data.ConsumeIntegral<uint32_t>()); break;
      case 2: {  // one that may be next
        const lamina::Lane& lane = any_lane(incoming);
        const uint32_t number = lanes.taken(lane.kind, lane.slot) +
                                data.ConsumeIntegralInRange<uint32_t>(0, lane.depth + 1);
        endpoint.Announce(Notification{lane.kind, lane.slot, number & 0xffffff}.Pack());
        break;
      }
      case 3: {
        const auto polled = lanes.Poll([&](const Notification& seen) {
          if (seen.kind == MessageKind::kLink || seen.kind == MessageKind::kAlive) return true;
          if (seen.kind == MessageKind::kPushDone) {
            Require(!lanes.pushing(seen.slot));
            return true;
          }
          Require(lanes.arrived(seen.kind, seen.slot));
          ++waiting[{seen.kind, seen.slot}];
          return true;
        });
        if (!polled.ok()) return 0;
        Require(polled->num_notifications <= polled->num_events);
        break;
      }
      case 4: {
        const lamina::Lane& lane = any_lane(incoming);
        int& left = waiting[{lane.kind, lane.slot}];
        Require(left >= 0 && left <= static_cast<int>(lane.depth));
        Require(lanes.arrived(lane.kind, lane.slot) == (left > 0));
        if (left == 0) break;
        --left;
        const uint32_t number = Notification::Next(lanes.taken(lane.kind, lane.slot));
        const auto message = lanes.Take(lane.kind, lane.slot);
        Require(lanes.taken(lane.kind, lane.slot) == number);
        if (!message.ok()) {
          Require(message.status().code() == lamina::StatusCode::kCorrupt);
          break;
        }
        Require(message->header.kind == lane.kind && message->header.number == number);
        const std::byte* const area =
            endpoint.window().data() + lane.offset + number % lane.depth * lane.area_bytes;
        Require(message->payload.data() == area + sizeof(lamina::MessageHeader));
        Require(sizeof(lamina::MessageHeader) + message->payload.size() <= lane.area_bytes);
        break;
      }
      case 5: {
        const lamina::Lane& lane = any_lane(outgoing);
        Require(lanes.Post(lane.kind, lane.slot, {}, 10).ok());
        break;
      }
    }
  }
  return 0;
}
