// Next tokens from logits that lie on a CUDA device: chosen there, so that only tokens come back.
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

// Thread: the stream's owner.
class Sampler {
 public:
  // Borrows the stream and the team, which lists penalised tokens and samples what the device does
  // not. Takes all the device memory that it will need: some 250 bytes for each of `max_rows` and 8
  // MiB. kOutOfSpace as DeviceBuffer::Create.
  static Result<std::unique_ptr<Sampler>> Create(int64_t max_rows, int64_t vocab,
                                                 StagedStream& stream, WorkerTeam& team);

  // tokens[i] is the one of work[i], as lamina::Sample chooses it up to what cuda/sampling.h says.
  // logits: [any, vocab] fp32, device memory, overwritten; the stream is waited for. REQUIRES: at
  // most max_rows, no row twice.
  //
  // Rows are sampled on the device but for these, which are copied to the host, each as a whole,
  // and sampled there: with more than kMaxTopLogprobs top_logprobs, with a bias that is not finite,
  // penalties and biases for which the 2^20 places of a step are too few, and all rows of a
  // vocabulary of more than kMaxSampledVocab.
  void Sample(float* logits, std::span<const SampleWork> work, std::span<SampledToken> tokens);

 private:
  Sampler(int64_t max_rows, int64_t vocab, StagedStream& stream, WorkerTeam& team,
          DeviceBuffer rows, DeviceBuffer edits, DeviceBuffer outputs)
      : vocab_(vocab),
        stream_(stream),
        team_(team),
        rows_(std::move(rows)),
        edits_(std::move(edits)),
        outputs_(std::move(outputs)),
        edits_of_(static_cast<size_t>(max_rows)) {}
  bool TakesRow(const SamplingParams& params) const;
  void CollectAll(std::span<const SampleWork> work);
  int64_t UploadRows(std::span<const SampleWork> work);

  const int64_t vocab_;
  StagedStream& stream_;
  WorkerTeam& team_;
  const DeviceBuffer rows_;           // [max_rows] SampleRow
  const DeviceBuffer edits_;          // LogitEdit
  const DeviceBuffer outputs_;        // [max_rows] SampleOutput
  std::vector<LogitEdits> edits_of_;  // by work, of the step
  std::vector<int64_t> place_;        // by work: where in rows_ it is; -1: on the host
};

}  // namespace lamina::cuda
