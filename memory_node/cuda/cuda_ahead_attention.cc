#include "memory_node/cuda/cuda_ahead_attention.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/rows.h"

namespace lamina {
namespace {

// How long a kernel waits for a layer's message. A compute node that is alive sends it within the
// time of a step, however long its prompts are. The limit is only the last resort: a compute node
// that is gone is noticed much earlier by its connection.
constexpr auto kMessageLimit = std::chrono::seconds(60);

// Most layers of a batch that are asked for at a time if this host posts the replies. With two, the
// next layer waits already while a reply leaves.
constexpr size_t kLayersByPosts = 2;

// Most scratch memory of attention for one batch. Rows that need more get what one row needs; steps
// that need more take several launches.
constexpr size_t kMaxScratchBytes = size_t{256} << 20;

}  // namespace

Result<std::unique_ptr<AheadAttention>> CudaAheadAttention::Create(const AttentionShape& shape,
                                                                   const WireShape& wire,
                                                                   cuda::KvCache& cache,
                                                                   cuda::StagedStream& uploads) {
  std::unique_ptr<CudaAheadAttention> ahead(new CudaAheadAttention(shape, wire, cache, uploads));
  uploads.Enter();
  LAMINA_ASSIGN_OR_RETURN(ahead->device_, cuda::IdOfDevice(uploads.device()));
  LAMINA_ASSIGN_OR_RETURN(ahead->window_, cuda::SharedBuffer::Create(wire.decode_areas_bytes() +
                                                                     wire.compute_window_bytes()));
  cuda::FillOnDevice(ahead->window_->data(), 0, ahead->window_->size_bytes(), uploads.stream());
  LAMINA_RETURN_IF_ERROR(uploads.Synchronize());
  for (int batch = 0; batch < wire.num_batches; ++batch)
    LAMINA_RETURN_IF_ERROR(ahead->CreateLane(batch));
  return std::unique_ptr<AheadAttention>(std::move(ahead));
}

Status CudaAheadAttention::CreateLane(int batch) {
  Lane& lane = lanes_.emplace_back();
  lane.batch = batch;
  LAMINA_ASSIGN_OR_RETURN(lane.stream, cuda::Stream::Create());
  LAMINA_ASSIGN_OR_RETURN(lane.waits, cuda::Waits::Create(uploads_.stream()));
  LAMINA_ASSIGN_OR_RETURN(lane.uploaded, cuda::Event::Create());
  const int64_t longest = cache_.capacity_tokens();
  const size_t scratch =
      std::min(cuda::AttentionScratchBytes(shape_, wire_.max_rows, longest), kMaxScratchBytes);
  LAMINA_ASSIGN_OR_RETURN(
      lane.scratch, cuda::DeviceBuffer::Create(
                        std::max(scratch, cuda::LeastAttentionScratchBytes(shape_, longest))));
  LAMINA_ASSIGN_OR_RETURN(
      lane.stored,
      cuda::DeviceBuffer::Create(static_cast<size_t>(wire_.max_rows) * sizeof(TokenSlot)));
  return OkStatus();
}

CudaAheadAttention::~CudaAheadAttention() {
  GiveUp();
  for (const Lane& lane : lanes_) {
    if (lane.stream != nullptr) (void)lane.stream->Synchronize();
  }
  // The next session may have no such object, and its attention waits for no other stream.
  uploads_.Enter();
  cache_.WriteCollected();
  (void)uploads_.Synchronize();
  cache_.WriteFromHostAgain();
}

DeviceWindow CudaAheadAttention::window() const {
  return {window_->descriptor(), window_->size_bytes(), device_,
          window_->reached_by_nics() ? window_->data() : nullptr, window_->dma_buf()};
}

Status CudaAheadAttention::Join(const DeviceWindow& peer) {
  uploads_.Enter();
  if (peer.bytes < wire_.compute_window_bytes())
    return InvalidArgument("the compute node's device window has only " +
                           std::to_string(peer.bytes) + " bytes");
  LAMINA_ASSIGN_OR_RETURN(
      peer_window_, peer.descriptor < 0
                        ? cuda::PeerWindow::ByPosts(window_->data() + wire_.decode_areas_bytes(),
                                                    wire_.num_batches)
                        : cuda::PeerWindow::Map(peer.descriptor, peer.bytes));
  // The cache's own stream may stand behind a wait from here on; pushed K and V must not.
  cache_.WriteFromHostBy(uploads_);
  return OkStatus();
}

Result<std::span<const TokenSlot>> CudaAheadAttention::Claim(SequenceId sequence,
                                                             int64_t num_tokens, StepId step) {
  LAMINA_RETURN_IF_ERROR(cache_.ClaimAll(sequence, num_tokens, step));
  return cache_.Readable(num_layers() - 1, sequence, num_tokens);
}

void CudaAheadAttention::Attend(const AheadStep& step) {
  Lane& lane = lanes_[static_cast<size_t>(step.batch)];
  uploads_.Enter();
  cache_.WriteCollected();
  if (lane.tables.size() < step.tables.size()) lane.tables.resize(step.tables.size());
  for (size_t kind = 0; kind < step.tables.size(); ++kind)
    lane.tables[kind].Upload(step.tables[kind], uploads_);
  uploads_.Copy(step.stored.data(), step.stored.size() * sizeof(TokenSlot), lane.stored.data());
  // The lane's kernels run behind these uploads, but without holding up `uploads`.
  lane.uploaded->Record(uploads_.stream());
  lane.uploaded->HoldBack(*lane.stream);

  lane.step = step.id;
  lane.rows = step.tables[0].size();
  lane.rows_stored = step.stored.size();
  lane.kind_of_layer = step.kind_of_layer;
  lane.next_layer = 0;
  AskLayers(lane);
}

// If this host posts the replies, it must not queue all layers at once: the number of launches
// behind a wait is limited, and at the limit this thread would block and post nothing. So more
// layers are asked for as replies leave (Carry).
void CudaAheadAttention::AskLayers(Lane& lane) {
  const std::byte* const q = Message(lane) + sizeof(cuda::Flag);
  const std::byte* const k = q + lane.rows * wire_.q_row_bytes();
  std::byte* const out = Reply(lane) + sizeof(cuda::Flag);
  for (; lane.next_layer < num_layers() && peer_window_->num_carried(lane.batch) < kLayersByPosts;
       ++lane.next_layer) {
    const int layer = lane.next_layer;
    Await(lane);
    cuda::WriteKv(k, k + lane.rows_stored * wire_.kv_row_bytes(), wire_.kv_dtype,
                  lane.stored.as<TokenSlot>(), static_cast<int64_t>(lane.rows_stored),
                  wire_.num_kv_heads, wire_.head_dim, cache_.Place(layer), *lane.stream);
    cuda::AttentionBatch attended;
    attended.q = q;
    attended.q_dtype = wire_.wire_dtype;
    attended.out = out;
    attended.out_dtype = wire_.wire_dtype;
    attended.lse = reinterpret_cast<float*>(out + lane.rows * wire_.q_row_bytes());
    lane.tables[static_cast<size_t>(lane.kind_of_layer[static_cast<size_t>(layer)])].FillIn(
        attended);
    cuda::Attention(shape_, cache_.View(layer), attended, lane.scratch, *lane.stream);
    Raise(lane, lane.rows * (wire_.q_row_bytes() + wire_.lse_row_bytes()), {lane.number});
  }
  RequireAsked(lane);
}

void CudaAheadAttention::Await(Lane& lane) {
  lane.waits->Await(reinterpret_cast<const cuda::Flag*>(Message(lane)), ++lane.number,
                    AboutMessage(lane.step.value, lane.rows, lane.rows_stored), kMessageLimit,
                    *lane.stream);
}

void CudaAheadAttention::Raise(Lane& lane, size_t payload_bytes, const cuda::Flag& becomes) {
  peer_window_->Raise({lane.batch, wire_.reply_offset(lane.batch), payload_bytes}, becomes,
                      *lane.waits, *lane.stream);
}

Result<bool> CudaAheadAttention::Carry(Endpoint& compute_node) {
  LAMINA_ASSIGN_OR_RETURN(
      const bool any, peer_window_->Carry([&](std::span<const std::byte> message, size_t offset) {
        return PostToDevice(compute_node, message, offset, 0);
      }));
  if (!any || gave_up()) return any;
  uploads_.Enter();
  for (Lane& lane : lanes_) {
    if (lane.next_layer < static_cast<int>(lane.kind_of_layer.size())) AskLayers(lane);
  }
  return any;
}

// Without this nobody would notice that a launch was refused, as the flag behind it is raised all
// the same.
void CudaAheadAttention::RequireAsked(Lane& lane) {
  cuda::RequireOk(lane.stream->TakeFailure(), uploads_.device());
  cuda::RequireOk(uploads_.stream().TakeFailure(), uploads_.device());
}

// The text may be written into the reply's place at once, before the messages come: the batch's
// previous step was answered, and its answer was read.
void CudaAheadAttention::Refuse(const AheadStep& step, size_t num_rows, const Status& why) {
  Lane& lane = lanes_[static_cast<size_t>(step.batch)];
  uploads_.Enter();
  const size_t bytes = std::min<size_t>(why.message().size(), WireShape::kMaxErrorBytes);
  uploads_.Copy(why.message().data(), bytes, Reply(lane) + sizeof(cuda::Flag));
  lane.uploaded->Record(uploads_.stream());
  lane.uploaded->HoldBack(*lane.stream);
  lane.step = step.id;
  lane.rows = num_rows;
  lane.rows_stored = step.stored.size();
  lane.kind_of_layer.clear();  // nothing is left to ask for
  for (int layer = 0; layer < num_layers(); ++layer) {
    Await(lane);
    Raise(lane, bytes,
          {lane.number, 0, static_cast<uint32_t>(why.code()), static_cast<uint32_t>(bytes)});
  }
  RequireAsked(lane);
}

void CudaAheadAttention::GiveUp() {
  for (const Lane& lane : lanes_) {
    if (lane.waits != nullptr) lane.waits->GiveUp();
  }
}

bool CudaAheadAttention::gave_up() const {
  return std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.waits->log().gave_up; });
}

int64_t CudaAheadAttention::attention_us() const {
  uint64_t ns = 0;
  for (const Lane& lane : lanes_) ns += lane.waits->log().worked_ns;
  return static_cast<int64_t>(ns / 1000);
}

}  // namespace lamina
