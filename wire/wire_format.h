// The data path between compute and memory nodes: what stands in the windows. Little-endian,
// offsets fixed by the limits both ends were configured with.
//
// Memory node's window (written by one compute node):
//   [decode area] x num_batches  MessageHeader, then q, k, v of the rows of one layer
//   [push area] x kPushSlots     MessageHeader, then k, v of prefill rows of one layer
// Compute node's window (written by one memory node):
//   [reply area] x num_batches   MessageHeader, then the attention output of the rows of one layer
// Compute node's window (written by another compute node):
//   [context area] x num_batches MessageHeader, then what the next slice needs:
//   compute_node/step_context.h [sum area] x 2 num_batches   if they run slices together:
//   MessageHeader, then a partial sum [rows, width] in the wire dtype, then a
//                                control::StepState. Message `number` of batch b is in area 2 b +
//                                number mod 2: a rank may be one sum ahead
// Compute nodes with steps under way also send each other kAlive (slot 0, number 0) now and then,
// which says nothing else: who waits for a context or a partial sum learns so whether it may still
// come. Heads are those that the memory node holds.
//
// With overlap (Configure) a decode message comes in two parts, with a header each, so that
// attention can begin before k and v are there:
//   kQueries at the area's start: q of all rows; then kDecode at second_part_offset(): their k,
//   then their v. Both have the same number.
// Parts of the reply's payload may be written, without a notification, before the rest and the
// header.
//
// A decode area is free again when its reply is there; a push slot when kPushDone for its message
// came back. The reply goes to the compute node that runs the next slice, which may be another than
// the one that asked. Messages of an area are numbered, and header and notifications carry the
// number: a notification that comes twice is not taken for that of a later message, whose bytes may
// still be on their way. Payload per row:
//   decode  q [num_heads, head_dim] in the wire dtype, then k, v [num_kv_heads, head_dim] in the KV
//   dtype; all rows' q first, then the k of
//           all rows whose token is stored on this node (the order says which), then their v
//   push    all rows' k, then all rows' v, [num_kv_heads, head_dim] each in the KV dtype
//   reply   out [num_heads, head_dim] in the wire dtype; behind all rows' out, if the decode
//   message has kWantsLse, the log-sum-exp
//           [num_heads] fp32 of each; on an error (status != 0) a UTF-8 message instead. With
//           kFailedRows some rows have no output, and behind all that stand u32 status
//           (StatusCode), u32 count, count x u32 row, and a UTF-8 message. With kTimes, ReplyTimes
//           (step_times.h) stand behind all that
// A row of k or v is a multiple of 8 elements, as head_dim is: with an 8-bit KV dtype v is aligned
// to 8 bytes and no further. Nothing of wider elements stands behind k and v in a message, so there
// is no padding.
//
// Device windows. A compute node and a memory node whose devices reach each other's memory, by
// mapping it or through NICs, have a second window each, in that memory, with the same areas for
// decode messages and replies. The compute node says with kLink (slot 1) that it has mapped the
// memory node's, or will post to it; if the memory node answers with kLink (slot 1), all decode
// messages between the two go through there: the same payload, never in two parts, behind a flag of
// the device (kernels/cuda/flags.h) instead of a header and a notification. What is posted is the
// message and then the flag's number. The flag's number counts a batch's messages, from 1; the
// order says what they are about: one for each layer, for the order's decode rows. Both ends check
// that they mean the same (AboutMessage). A reply always has the log-sum-exp, and no times; on an
// error the flag's status is a StatusCode and its detail the bytes of the message. Pushes go on as
// they do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"

namespace lamina {

inline constexpr uint32_t kWireMagic = 0x314e4d4c;  // "LMN1"
// Layers on their way to one memory node during prefill.
inline constexpr int kPushSlots = 4;
// Rows of one push; a longer chunk takes several.
inline constexpr int kMaxPushRows = 256;
inline constexpr int kMaxBatches = 16;  // in flight at a time

enum class MessageKind : uint16_t {
  kDecode = 1,
  kPush = 2,
  kReply = 3,
  kPushDone = 4,
  kContext = 5,
  kQueries = 6,
  kPartialSum = 7,
  kLink = 8,
  kAlive = 9
};  // kPushDone, kLink and kAlive are only ever notifications

struct MessageHeader {
  uint32_t magic = kWireMagic;  // 0
  MessageKind kind{};           // 4
  uint16_t status = 0;          // 6   reply: StatusCode
  uint64_t epoch = 0;           // 8
  uint64_t step = 0;            // 16
  // 24  context: the slice that needs it; partial sum: ValueId of the sum.
  uint32_t layer = 0;
  uint32_t first_row = 0;      // 28  index into the order's rows
  uint32_t num_rows = 0;       // 32
  uint32_t payload_bytes = 0;  // 36
  // 40  XXH3_64 of the payload if flags has kHasPayloadChecksum, else 0.
  uint64_t payload_checksum = 0;
  uint16_t flags = 0;  // 48
  // 50  decode: NodeId of the compute node that gets the reply; 0: the one that asks.
  uint16_t reply_to = 0;
  uint32_t number = 0;           // 52  as in the notification
  uint64_t header_checksum = 0;  // 56  XXH3_64 of the 56 bytes before
};
static_assert(sizeof(MessageHeader) == 64 && offsetof(MessageHeader, header_checksum) == 56);

// MessageHeader::flags
inline constexpr uint16_t kHasPayloadChecksum = 1;
// Decode: some rows' outputs will be merged with those of other nodes.
inline constexpr uint16_t kWantsLse = 2;
// Decode: wants ReplyTimes (step_times.h); reply: its payload ends with them.
inline constexpr uint16_t kTimes = 4;
inline constexpr uint16_t kLastLayer = 8;    // decode: nothing of the step follows
inline constexpr uint16_t kFailedRows = 16;  // reply: FailedRows stand in it

// What a message in a device window is about, in 64 bits: its step, the rows in it, and those of
// them with k and v.
constexpr uint64_t AboutMessage(uint64_t step, size_t rows, size_t stored) {
  return step << 36 | uint64_t{rows} << 18 | stored;
}

// Whether messages over `fabric` carry a checksum of their payload: `setting` is "on", "off" or
// "auto", which is on for tcp. There the sums of the packets are weak and often computed by the NIC
// before the bytes have crossed its bus; RDMA has a strong one, shared memory needs none.
bool NeedsPayloadChecksum(std::string_view setting, std::string_view fabric);

// The 32 bits of a transport notification: kind (4 bits), slot (4), number of the message (24). An
// area's first message is number 1; kPushDone has the number of the push.
struct Notification {
  MessageKind kind{};
  // Decode, queries, reply, context, partial sum: batch, < kMaxBatches; push: < kPushSlots; link: 1
  // yes, 0 no.
  uint32_t slot = 0;
  uint32_t number = 0;

  uint32_t Pack() const { return static_cast<uint32_t>(kind) << 28 | slot << 24 | number; }
  static std::optional<Notification> Unpack(uint32_t value);  // none: means nothing

  static constexpr uint32_t Next(uint32_t number) { return (number + 1) & 0xffffff; }
  // Calls of Next.
  static constexpr uint32_t Distance(uint32_t from, uint32_t to) { return (to - from) & 0xffffff; }
};

inline constexpr uint64_t kMaxErrorBytes = 1024;  // of a message to people

// Rows of a decode message that got no output, while the others did; `why`: of the first.
struct FailedRows {
  std::vector<uint32_t> rows;
  Status why;

  void Add(size_t row, const Status& status);
  bool Has(size_t row) const;

  static constexpr uint64_t MaxBytes(int max_rows) {
    return 8 + uint64_t{4} * static_cast<uint64_t>(max_rows) + kMaxErrorBytes;
  }
  // REQUIRES: room for MaxBytes. Returns how many it wrote.
  size_t Write(std::span<std::byte> into) const;
  // kCorrupt: they are not those of a message of `num_rows` rows.
  static Result<FailedRows> Read(std::span<const std::byte> bytes, size_t num_rows);
};

// Sizes and offsets that both ends derive from the same Configure message.
struct WireShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  DType kv_dtype = DType::kBF16;
  int max_rows = 0;  // decoding rows of a step
  int num_batches = 1;
  DType wire_dtype = DType::kF32;  // of q and attention output; k and v travel as they are stored
  bool overlap = false;            // decode messages come in two parts

  uint64_t q_row_elements() const { return static_cast<uint64_t>(num_heads) * head_dim; }
  uint64_t kv_row_elements() const { return static_cast<uint64_t>(num_kv_heads) * head_dim; }
  // Also of an output.
  uint64_t q_row_bytes() const { return ElementSize(wire_dtype) * q_row_elements(); }
  uint64_t kv_row_bytes() const { return ElementSize(kv_dtype) * kv_row_elements(); }  // k or v
  uint64_t decode_row_bytes() const { return q_row_bytes() + 2 * kv_row_bytes(); }
  uint64_t lse_row_bytes() const { return uint64_t{4} * num_heads; }

  uint64_t decode_area_bytes() const {
    return Align(2 * sizeof(MessageHeader) + max_rows * decode_row_bytes());
  }
  uint64_t push_area_bytes() const {
    return Align(sizeof(MessageHeader) + kMaxPushRows * 2 * kv_row_bytes());
  }
  uint64_t decode_offset(int batch) const { return batch * decode_area_bytes(); }
  uint64_t second_part_offset(int batch) const {
    return decode_offset(batch) + sizeof(MessageHeader) + max_rows * q_row_bytes();
  }
  uint64_t second_part_bytes() const {
    return sizeof(MessageHeader) + max_rows * 2 * kv_row_bytes();
  }
  uint64_t decode_areas_bytes() const { return decode_offset(num_batches); }
  uint64_t push_offset(int slot) const { return decode_areas_bytes() + slot * push_area_bytes(); }
  uint64_t memory_window_bytes() const { return push_offset(kPushSlots); }
  uint64_t reply_area_bytes() const {
    return Align(sizeof(MessageHeader) + max_rows * (q_row_bytes() + lse_row_bytes()) +
                 FailedRows::MaxBytes(max_rows) + kMaxTimesBytes);
  }
  uint64_t reply_offset(int batch) const { return batch * reply_area_bytes(); }
  uint64_t compute_window_bytes() const { return reply_offset(num_batches); }

  static constexpr uint64_t kMaxErrorBytes = lamina::kMaxErrorBytes;
  static constexpr uint64_t kMaxTimesBytes = 64;
  static constexpr uint64_t Align(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }
};

// Fills size and checksums for `header` followed by `payload` and returns the header, which always
// has a checksum of its own.
MessageHeader Seal(MessageHeader header, std::span<const std::byte> payload, bool payload_checksum);

// Reads and checks the message at the start of `area`: magic, header checksum, kind, payload within
// the area, payload checksum if there is one; and there must be one if `payload_checksum`. kCorrupt
// says which. `payload` is then the part of the area behind the header.
struct ReceivedMessage {
  MessageHeader header;
  std::span<const std::byte> payload;
};
Result<ReceivedMessage> Open(std::span<const std::byte> area, MessageKind kind,
                             bool payload_checksum);

inline constexpr size_t kSessionTokenBytes = 16;

// What a compute node says when it connects to a memory node's fabric. The memory node says the
// same without a token: strangers read it.
struct DataHello {
  uint64_t epoch = 0;
  uint32_t node_id = 0;
  // Of Configure; proves that the manager's session has this node. kSessionTokenBytes, or "": none.
  std::string session_token;

  // u64 epoch, u32 node_id, then the token.
  std::string Encode() const;
  static std::optional<DataHello> Decode(const std::string& bytes);
};

}  // namespace lamina
