// Chooses tokens from logits that lie on a CUDA device. They are chosen there (kernels/cuda/
// sampling.h), so that only tokens and log-probabilities are copied to the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/worker_team.h"
#include "kernels/cuda/host/staged_stream.h"
#include "kernels/cuda/sampling.h"
#include "kernels/sampling.h"

namespace lamina::cuda {

// Owns the device memory for parameters and results. A device that fails ends the process
// (RequireOk in staged_stream.h). Thread: the owner of the stream and the team.
class Sampler {
 public:
  // Borrows the stream, and the team, which lists penalised tokens and samples the rows that the
  // device does not. Takes all the device memory that it will need: some 250 bytes for each of
  // `max_rows`, and 8 MiB. kOutOfSpace if the device has less.
  static Result<std::unique_ptr<Sampler>> Create(int64_t max_rows, int64_t vocab,
                                                 StagedStream& stream, WorkerTeam& team);

  // Sets tokens[i] to the next token for work[i], which lamina::Sample would choose too, within the
  // bounds that kernels/cuda/sampling.h states. Waits for the stream. logits: [any, vocab] fp32,
  // device memory, overwritten; work, tokens: [at most max_rows]. REQUIRES: no row of logits occurs
  // twice.
  //
  // Some rows are copied to the host as a whole and sampled there: rows that ask for more than
  // kMaxTopLogprobs top log-probabilities, rows with a mask or a bias that is not finite, rows
  // whose penalties and biases do not fit the 2^20 places of a step, and all rows if the vocabulary
  // has more than kMaxSampledVocab tokens.
  void Sample(float* logits, std::span<const SampleWork> work, std::span<SampledToken> tokens);

  // Sets scores[i] to what lamina::Score says of work[i]. The rows are copied to the host, at most
  // 32 MiB (or one row) at a time, and scored there. Waits for the stream. logits: [any, vocab]
  // fp32, device memory.
  void Score(const float* logits, std::span<const ScoreWork> work, std::span<TokenScore> scores);

 private:
  struct Buffers {
    DeviceBuffer rows;     // [max_rows] SampleRow
    DeviceBuffer edits;    // [2^20] LogitEdit
    DeviceBuffer outputs;  // [max_rows] SampleOutput
  };

  Sampler(int64_t max_rows, int64_t vocab, Buffers buffers, StagedStream& stream, WorkerTeam& team)
      : vocab_(vocab),
        stream_(stream),
        team_(team),
        buffers_(std::move(buffers)),
        edits_of_(static_cast<size_t>(max_rows)) {}
  // Whether the device can sample such a row.
  bool TakesRow(const SampleWork& work) const;
  // Fills edits_of_, on the team.
  void CollectAll(std::span<const SampleWork> work);
  // Uploads the rows that are sampled on the device, sets place_, and returns how many rows it are.
  int64_t UploadRows(std::span<const SampleWork> work);

  const int64_t vocab_;
  StagedStream& stream_;
  WorkerTeam& team_;
  const Buffers buffers_;
  std::vector<LogitEdits> edits_of_;  // [max_rows], for the step's work
  std::vector<int64_t> place_;  // [work], its place in buffers_.rows; -1: it is sampled on the host
};

}  // namespace lamina::cuda
