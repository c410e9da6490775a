// The format of the data path between compute and memory nodes: which messages exist, where they
// are in the windows, and how they are sealed and checked. All numbers are little-endian. Offsets
// follow from limits that both ends were configured with (WireShape).
//
// Windows. Each peer writes into a window of its own:
//   memory node's window, written by one compute node
//     [decode area] x num_batches   MessageHeader, then q, k, v of the rows of one layer
//     [push area] x kPushSlots      MessageHeader, then k, v of prefill rows of one layer
//   compute node's window, written by one memory node
//     [reply area] x num_batches    MessageHeader, then the attention output of the rows of a layer
//   compute node's window, written by another compute node
//     [context area] x num_batches  MessageHeader, then what the next slice needs, in the format of
//                                   compute_node/step_context.h
//     [sum area] x 2 num_batches    only if they run slices together: MessageHeader, then a partial
//                                   sum [rows, width] in the wire dtype, then a StepState.
//                                   Message `number` of batch b is in area 2 b + number mod 2,
//                                   because a rank may be one sum ahead
//
// Payload of messages between compute and memory nodes. Heads are those that the memory node holds;
// q and outputs are in the wire dtype, k and v in the KV dtype:
//   decode  q [num_heads, head_dim] of all rows; then k [num_kv_heads, head_dim] of the rows whose
//           token is stored on this node (the order says which); then v of the same rows
//   push    k [num_kv_heads, head_dim] of all rows; then v of all rows
//   reply   these parts, in this order:
//             out [num_heads, head_dim] of all rows
//             with kWantsLse in the decode message: log-sum-exp [num_heads] fp32 of all rows
//             with kFailedRows: u32 status (StatusCode), u32 count, count x u32 row, and a UTF-8
//               message; these rows have no output
//             with kTimes: ReplyTimes (step_times.h)
//           On an error (status != 0) a UTF-8 message takes the place of all but the times.
// A row of k or v is a multiple of 8 elements, as head_dim is: with an 8-bit KV dtype v is aligned
// to 8 bytes and no further. Nothing of wider elements follows k and v in a message, so there is no
// padding.
//
// With overlap (WireShape::overlap) a decode message comes in two parts, each with a header, so
// that attention can begin before k and v are there: kQueries, at the area's start, has q of all
// rows; kDecode, at second_part_offset(), has k and then v. Both parts have the same number. Parts
// of the reply's payload may be written, without a notification, before the rest and the header.
//
// Flow control. A decode area is free again when its reply is there, a push slot when kPushDone for
// its message came back. The reply goes to the compute node that runs the next slice, which may be
// another than the one that asked. The messages of an area are numbered, and both header and
// notification carry the number: so a notification that is delivered twice is not taken for that of
// a later message, whose bytes may still be under way.
//
// Compute nodes with steps under way also send each other kAlive (slot 0, number 0) now and then. A
// node that waits for a context or a partial sum knows from it that the peer still runs.
//
// Device windows. If the devices of a compute node and a memory node reach each other's memory, by
// mapping it or through NICs, each has a second window in device memory, with the same areas for
// decode messages and replies. The compute node sends kLink (slot 1) when it has mapped the memory
// node's device window, or will post to it. If the memory node answers with kLink (slot 1), all
// decode messages between the two go through the device windows. They have the same payload, but
// never two parts, and a flag of the device (kernels/cuda/flags.h) takes the place of header and
// notification: first the message is posted, then the flag's number. That number counts the
// messages of a batch, from 1; the order says what they are about: one for each layer, for the
// order's decode rows. Both ends compare AboutMessage to check that they mean the same message. A
// reply always has the log-sum-exp, and never times; on an error the flag's status is a StatusCode,
// and its detail is the length of the error message in bytes. Pushes still go through the other
// windows.
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
#include "wire/settings.h"

namespace lamina {

inline constexpr uint32_t kWireMagic = 0x314e4d4c;  // "LMN1"
// Most pushes in flight to one memory node during prefill.
inline constexpr int kPushSlots = 4;
// Most rows of one push; a longer chunk takes several pushes.
inline constexpr int kMaxPushRows = 256;
// Most batches in flight at a time; a notification has 4 bits for the batch.
inline constexpr int kMaxBatches = 16;

// kPushDone, kLink and kAlive are notifications only and have no message.
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
};

// Begins every message. The remarks begin with the offset in bytes.
struct MessageHeader {
  uint32_t magic = kWireMagic;  // 0
  MessageKind kind{};           // 4
  uint16_t status = 0;          // 6   reply: StatusCode
  uint64_t epoch = 0;           // 8
  uint64_t step = 0;            // 16
  // 24  Layer of the model. Context: the slice that needs it. Partial sum: ValueId of the sum.
  uint32_t layer = 0;
  uint32_t first_row = 0;      // 28  index into the order's rows
  uint32_t num_rows = 0;       // 32
  uint32_t payload_bytes = 0;  // 36
  // 40  XXH3_64 of the payload if flags has kHasPayloadChecksum, else 0.
  uint64_t payload_checksum = 0;
  uint16_t flags = 0;  // 48
  // 50  Decode: NodeId of the compute node that gets the reply; 0: the sender.
  uint16_t reply_to = 0;
  uint32_t number = 0;           // 52  Notification::number
  uint64_t header_checksum = 0;  // 56  XXH3_64 of the 56 bytes before
};
static_assert(sizeof(MessageHeader) == 64 && offsetof(MessageHeader, header_checksum) == 56);

// Bits of MessageHeader::flags.
inline constexpr uint16_t kHasPayloadChecksum = 1;
// Decode: the reply must have log-sum-exps, as some outputs will be merged with those of others.
inline constexpr uint16_t kWantsLse = 2;
// Decode: the reply must have ReplyTimes (step_times.h). Reply: its payload ends with them.
inline constexpr uint16_t kTimes = 4;
// Decode: the last layer, so no further message of the step follows.
inline constexpr uint16_t kLastLayer = 8;
// Reply: some rows have no output; FailedRows are in the payload.
inline constexpr uint16_t kFailedRows = 16;

// Describes a message in a device window in 64 bits, for both ends to compare: its step (the low 28
// bits), the number of its rows (18 bits), and the number of those with k and v (18 bits).
constexpr uint64_t AboutMessage(uint64_t step, size_t rows, size_t stored) {
  return step << 36 | uint64_t{rows} << 18 | stored;
}

// Whether messages over `fabric` carry a checksum of their payload. kAuto is on for tcp only: the
// packets' own checksums are weak there, and often computed by the NIC before the bytes have
// crossed its bus. RDMA has a strong checksum; shared memory needs none.
bool NeedsPayloadChecksum(Switch setting, std::string_view fabric);

// The 32 bits of a transport notification: kind (4 bits), slot (4 bits), number of the message
// (24 bits).
struct Notification {
  MessageKind kind{};
  // Decode, queries, reply, context, partial sum: the batch, less than kMaxBatches. Push and push
  // done: the push slot, less than kPushSlots. Link: 1 for yes, 0 for no.
  uint32_t slot = 0;
  // Counts the messages of an area from 1, modulo 2^24. kPushDone has the number of the push.
  uint32_t number = 0;

  uint32_t Pack() const { return static_cast<uint32_t>(kind) << 28 | slot << 24 | number; }
  // nullopt if the kind is unknown or the slot out of range.
  static std::optional<Notification> Unpack(uint32_t value);

  static constexpr uint32_t Next(uint32_t number) { return (number + 1) & 0xffffff; }
  // How many calls of Next lead from one number to the other.
  static constexpr uint32_t Distance(uint32_t from, uint32_t to) { return (to - from) & 0xffffff; }
};

// Longest text of an error in a message; longer ones are cut.
inline constexpr uint64_t kMaxErrorBytes = 1024;

// The rows of a decode message that got no output although the others did, and why the first of
// them failed.
struct FailedRows {
  std::vector<uint32_t> rows;  // indices in the message, in the order of Add
  Status why;

  void Add(size_t row, const Status& status);
  bool Has(size_t row) const;

  // Upper bound of what Write needs for at most `max_rows` rows.
  static constexpr uint64_t MaxBytes(int max_rows) {
    return 8 + uint64_t{4} * static_cast<uint64_t>(max_rows) + kMaxErrorBytes;
  }
  // Returns the number of bytes it wrote. REQUIRES: `into` has MaxBytes of the number of rows.
  size_t Write(std::span<std::byte> into) const;
  // Returns kCorrupt if the bytes are not failed rows of a message with `num_rows` rows.
  static Result<FailedRows> Read(std::span<const std::byte> bytes, size_t num_rows);
};

// Sizes and offsets of the areas in the windows, in bytes. Both ends derive them from the same
// Configure message.
struct WireShape {
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  DType kv_dtype = DType::kBF16;
  int max_rows = 0;  // most decoding rows of a step
  int num_batches = 1;
  DType wire_dtype = DType::kF32;  // of q and attention output; k and v travel as they are stored
  bool overlap = false;            // decode messages come in two parts

  uint64_t q_row_elements() const { return static_cast<uint64_t>(num_heads) * head_dim; }
  uint64_t kv_row_elements() const { return static_cast<uint64_t>(num_kv_heads) * head_dim; }
  // Of one row of q, and of one row of output.
  uint64_t q_row_bytes() const { return ElementSize(wire_dtype) * q_row_elements(); }
  // Of one row of k, and of one row of v.
  uint64_t kv_row_bytes() const {
    return static_cast<uint64_t>(KvRowBytes(kv_dtype, num_kv_heads, head_dim));
  }
  uint64_t decode_row_bytes() const { return q_row_bytes() + 2 * kv_row_bytes(); }
  uint64_t lse_row_bytes() const { return uint64_t{4} * num_heads; }

  // Room for two headers, since the message may come in two parts.
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
  static constexpr uint64_t kMaxTimesBytes = 64;  // at least sizeof(ReplyTimes)
  // Areas begin at page boundaries.
  static constexpr uint64_t Align(uint64_t bytes) { return (bytes + 4095) & ~uint64_t{4095}; }
};

// Returns `header` with the size of `payload` and the checksums filled in. The header's own
// checksum is always there, that of the payload only if `payload_checksum`.
MessageHeader Seal(MessageHeader header, std::span<const std::byte> payload, bool payload_checksum);

struct ReceivedMessage {
  MessageHeader header;
  std::span<const std::byte> payload;  // in the area, behind the header
};
// Reads and checks the message at the start of `area`: magic, header checksum, kind, size, and the
// payload's checksum if it has one. Returns kCorrupt, with the check that failed, if one fails or
// if `payload_checksum` is set and the message has none. The payload is borrowed from `area`.
Result<ReceivedMessage> Open(std::span<const std::byte> area, MessageKind kind,
                             bool payload_checksum);

inline constexpr size_t kSessionTokenBytes = 16;

// What a compute node says when it connects to a memory node's fabric. The memory node says the
// same without a token, because anybody who connects reads it.
struct DataHello {
  uint64_t epoch = 0;
  uint32_t node_id = 0;
  // The token of the Configure message, which proves that the node belongs to the manager's
  // session: kSessionTokenBytes, or empty for none.
  std::string session_token;

  // The bytes are u64 epoch, u32 node_id, then the token.
  std::string Encode() const;
  // nullopt if the size is wrong.
  static std::optional<DataHello> Decode(const std::string& bytes);
};

}  // namespace lamina
