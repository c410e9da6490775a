#include "kernels/cuda/host/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

namespace lamina::cuda {
namespace {

static_assert(std::is_trivially_copyable_v<SampleRow> && std::is_trivially_copyable_v<LogitEdit>,
              "they are uploaded as they stand");
// Places for all edits of a step: 4096 different tokens in each of 256 rows.
constexpr int64_t kMaxEdits = int64_t{1} << 20;
constexpr size_t kScoredBytes = size_t{32} << 20;  // of logits that are on the host at a time

int64_t NumEdits(const LogitEdits& edits) {
  return std::ssize(edits.biases) + std::ssize(edits.penalties);
}

// The parameters of a row as the device takes them, without its edits.
SampleRow RowOf(const SampleWork& work) {
  const SamplingParams& params = *work.params;
  SampleRow row;
  row.row = static_cast<int64_t>(work.row);
  row.repetition_penalty = params.repetition_penalty;
  row.num_logprobs = params.num_logprobs;
  const float temperature = DrawTemperature(params);
  if (temperature == 0) return row;  // greedy: the rest does not matter
  // Drawn on the host, so that both samplers use the same number.
  row.random = Random01(params.seed, work.context.prompt.size() + work.context.output.size());
  row.inverse_temperature = 1.0f / temperature;
  row.top_p = params.top_p;
  row.top_k = params.top_k;
  if (params.min_p > 0) row.min_p_distance = -(temperature * std::log(params.min_p));
  return row;
}

SampledToken TokenOf(const SampleOutput& output, const SamplingParams& params, int64_t vocab) {
  SampledToken sampled;
  sampled.token = output.token;
  if (output.token < 0 || params.num_logprobs < 0) return sampled;
  const double log_sum = output.max + std::log(static_cast<double>(output.sum) * kWeightUnit);
  sampled.logprob = static_cast<float>(output.logit - log_sum);
  sampled.rank = output.rank;
  const int64_t num_top = std::min<int64_t>(params.num_logprobs, vocab);
  for (const SampleOutput::Top& top : std::span(output.top).first(static_cast<size_t>(num_top))) {
    sampled.top.push_back({top.token, static_cast<float>(top.logit - log_sum)});
  }
  return sampled;
}

}  // namespace

Result<std::unique_ptr<Sampler>> Sampler::Create(int64_t max_rows, int64_t vocab,
                                                 StagedStream& stream, WorkerTeam& team) {
  const auto num_rows = static_cast<size_t>(max_rows);
  Buffers buffers;
  LAMINA_ASSIGN_OR_RETURN(buffers.rows, DeviceBuffer::Create(num_rows * sizeof(SampleRow)));
  LAMINA_ASSIGN_OR_RETURN(buffers.edits, DeviceBuffer::Create(kMaxEdits * sizeof(LogitEdit)));
  LAMINA_ASSIGN_OR_RETURN(buffers.outputs, DeviceBuffer::Create(num_rows * sizeof(SampleOutput)));
  return std::unique_ptr<Sampler>(new Sampler(max_rows, vocab, std::move(buffers), stream, team));
}

bool Sampler::TakesRow(const SampleWork& work) const {
  const SamplingParams& params = *work.params;
  return work.context.next.tokens == nullptr && vocab_ <= kMaxSampledVocab &&
         params.num_logprobs <= kMaxTopLogprobs &&
         std::ranges::all_of(params.logit_bias,
                             [](const auto& bias) { return std::isfinite(bias.second); });
}

void Sampler::CollectAll(std::span<const SampleWork> work) {
  team_.ParallelFor(std::ssize(work), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      if (TakesRow(work[i])) CollectEdits(*work[i].params, work[i].context, vocab_, edits_of_[i]);
    }
  });
}

int64_t Sampler::UploadRows(std::span<const SampleWork> work) {
  std::vector<SampleRow> rows;
  int64_t num_edits = 0;
  place_.assign(work.size(), -1);
  for (size_t i = 0; i < work.size(); ++i) {
    // A row whose edits no longer fit is sampled on the host; a later one with fewer may fit.
    if (!TakesRow(work[i]) || num_edits + NumEdits(edits_of_[i]) > kMaxEdits) continue;
    place_[i] = std::ssize(rows);
    SampleRow& row = rows.emplace_back(RowOf(work[i]));
    row.first_edit = static_cast<int32_t>(num_edits);
    row.num_biases = static_cast<int32_t>(edits_of_[i].biases.size());
    row.num_penalties = static_cast<int32_t>(edits_of_[i].penalties.size());
    num_edits += NumEdits(edits_of_[i]);
  }
  stream_.Copy(rows.data(), rows.size() * sizeof(SampleRow), buffers_.rows.data());
  if (num_edits == 0) return std::ssize(rows);
  const size_t bytes = static_cast<size_t>(num_edits) * sizeof(LogitEdit);
  // Put together in pinned memory, so that all edits are one copy.
  std::byte* const taken = stream_.Take(bytes);
  std::byte* at = taken;
  for (size_t i = 0; i < work.size(); ++i) {
    if (place_[i] < 0) continue;
    for (const std::vector<LogitEdit>* edits : {&edits_of_[i].biases, &edits_of_[i].penalties}) {
      if (!edits->empty()) std::memcpy(at, edits->data(), edits->size() * sizeof(LogitEdit));
      at += edits->size() * sizeof(LogitEdit);
    }
  }
  stream_.Upload(taken, bytes, buffers_.edits.data());
  return std::ssize(rows);
}

void Sampler::Sample(float* logits, std::span<const SampleWork> work,
                     std::span<SampledToken> tokens) {
  if (work.empty()) return;
  const auto vocab = static_cast<size_t>(vocab_);
  CollectAll(work);
  const int64_t num_rows = UploadRows(work);
  SampleTokens(logits, vocab_, buffers_.rows.as<SampleRow>(), num_rows,
               buffers_.edits.as<LogitEdit>(), buffers_.outputs.as<SampleOutput>(),
               stream_.stream());
  const std::byte* const outputs =
      stream_.Fetch(buffers_.outputs.data(), static_cast<size_t>(num_rows) * sizeof(SampleOutput));
  // The logits of rows that are sampled on the host; null for the others.
  std::vector<float*> fetched(work.size(), nullptr);
  for (size_t i = 0; i < work.size(); ++i) {
    if (place_[i] >= 0) continue;
    const std::byte* const row = stream_.Fetch(logits + work[i].row * vocab, vocab * sizeof(float));
    // lamina::Sample overwrites its logits. This copy is nobody else's, so it may.
    fetched[i] = reinterpret_cast<float*>(const_cast<std::byte*>(row));
  }
  stream_.Finish();
  team_.ParallelFor(std::ssize(work), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      if (fetched[i] != nullptr)
        tokens[i] = lamina::Sample({fetched[i], vocab}, *work[i].params, work[i].context);
      else
        tokens[i] = TokenOf(reinterpret_cast<const SampleOutput*>(outputs)[place_[i]],
                            *work[i].params, vocab_);
    }
  });
}

void Sampler::Score(const float* logits, std::span<const ScoreWork> work,
                    std::span<TokenScore> scores) {
  const auto vocab = static_cast<size_t>(vocab_);
  const size_t at_a_time = std::max<size_t>(1, kScoredBytes / (vocab * sizeof(float)));
  std::vector<const float*> fetched;
  for (size_t first = 0; first < work.size(); first += at_a_time) {
    const auto some = work.subspan(first, std::min(at_a_time, work.size() - first));
    fetched.clear();
    for (const ScoreWork& one : some)
      fetched.push_back(reinterpret_cast<const float*>(
          stream_.Fetch(logits + one.row * vocab, vocab * sizeof(float))));
    stream_.Finish();
    team_.ParallelFor(std::ssize(some), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
        scores[first + i] = lamina::Score({fetched[i], vocab}, some[i].token, some[i].num_top);
    });
  }
}

}  // namespace lamina::cuda
