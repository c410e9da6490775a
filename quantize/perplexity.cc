#include "quantize/perplexity.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "compute_node/compute_device.h"
#include "compute_node/local_attention.h"
#include "text/tokenizer.h"

namespace lamina {
namespace {

constexpr int64_t kContext = 512;
// Rows of a step.
constexpr int kRows = 64;
constexpr SequenceId kSequence{1};

using Tokens = std::vector<TokenId>;

// One sequence after the other through a whole model, which gives the logits of all rows.
class Forward {
 public:
  static Result<std::unique_ptr<Forward>> Create(const PerplexityOptions& options, int64_t context,
                                                 WorkerTeam& team) {
    std::unique_ptr<Forward> forward(new Forward(team));
    WeightOptions weights;
    weights.model_dir = options.model_dir;
    LAMINA_ASSIGN_OR_RETURN(forward->model_, forward->device_.Load(weights));
    const SlicedModel& sliced = forward->model_->sliced;
    LAMINA_ASSIGN_OR_RETURN(forward->slices_, forward->device_.MakeSlices(*forward->model_, kRows));
    const Op& first = sliced.attentions[0];
    const AttentionShape shape{first.num_heads, first.num_kv_heads, first.head_dim, first.scale,
                               first.soft_cap};
    const KvShape kv{static_cast<int>(sliced.attentions.size()), first.num_kv_heads, first.head_dim,
                     options.kv_dtype.value_or(forward->model_->config.dtype)};
    AttentionLayers layers{.sinks = forward->model_->sinks};
    for (const Op& op : sliced.attentions) layers.windows.push_back(op.window);
    LAMINA_ASSIGN_OR_RETURN(std::unique_ptr<LocalKv> store,
                            forward->device_.MakeKv(shape, kv, layers, context));
    forward->attention_ = std::make_unique<LocalAttention>(std::move(store), /*num_batches=*/1);
    return forward;
  }

  // Gives `take` the logits of the row of each token but the last, with the token behind it.
  Status Run(std::span<const TokenId> tokens,
             const std::function<void(std::span<const float> logits, TokenId next)>& take) {
    for (size_t begin = 0; begin + 1 < tokens.size(); begin += kRows) {
      const size_t rows = std::min<size_t>(kRows, tokens.size() - 1 - begin);
      LAMINA_RETURN_IF_ERROR(RunRows(tokens.subspan(begin, rows), begin));
      const ValueId id = model_->sliced.graph.logits;
      const auto width =
          static_cast<size_t>(model_->sliced.graph.values[static_cast<size_t>(id)].width);
      const float* const logits = slices_->value(id);
      for (size_t i = 0; i < rows; ++i) take({logits + i * width, width}, tokens[begin + i + 1]);
    }
    attention_->Release(kSequence);
    return OkStatus();
  }

 private:
  explicit Forward(WorkerTeam& team) : device_(team) {}

  Status RunRows(std::span<const TokenId> tokens, size_t first) {
    std::vector<int32_t> positions;
    std::vector<AttentionWork> rows;
    for (size_t i = 0; i < tokens.size(); ++i) {
      positions.push_back(static_cast<int32_t>(first + i));
      rows.push_back({.sequence = kSequence,
                      .node = NodeId{},
                      .position = positions.back(),
                      .slot = static_cast<TokenSlot>(first + i)});
    }
    AttentionStep& step = attention_->Begin({0, StepId{++num_steps_}, rows});
    slices_->Begin(tokens, positions);
    for (const Slice& slice : model_->sliced.slices) {
      slices_->Run(slice.index);
      if (slice.attention < 0) continue;
      const Op& op = model_->sliced.attentions[static_cast<size_t>(slice.attention)];
      step.Start({op.layer, slices_->value(slice.q), slices_->value(slice.k),
                  slices_->value(slice.v), slices_->value(op.output)});
      step.Finish();
    }
    if (!step.failures().empty()) return step.failures().begin()->second;
    step.End();
    return OkStatus();
  }

  CpuDevice device_;
  std::unique_ptr<LoadedModel> model_;
  std::unique_ptr<SliceRunner> slices_;
  std::unique_ptr<LocalAttention> attention_;
  uint64_t num_steps_ = 0;
};

double NegativeLogLikelihood(std::span<const float> logits, TokenId token) {
  const double most = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - most);
  return most + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(token)]);
}

// Pieces of a text, each with the token that texts begin with.
Status AddPieces(const Tokenizer& tokenizer, std::string_view text, int64_t context,
                 std::vector<Tokens>& pieces) {
  LAMINA_ASSIGN_OR_RETURN(const Tokens tokens, tokenizer.Encode(text, true));
  const bool has_bos = tokenizer.bos() && !tokens.empty() && tokens.front() == *tokenizer.bos();
  const auto most = static_cast<size_t>(context) - (has_bos ? 1 : 0);
  for (size_t begin = has_bos ? 1 : 0; begin < tokens.size(); begin += most) {
    const auto rest = std::span(tokens).subspan(begin, std::min(most, tokens.size() - begin));
    Tokens piece(has_bos ? 1 : 0, tokens.front());
    piece.insert(piece.end(), rest.begin(), rest.end());
    if (piece.size() > 1) pieces.push_back(std::move(piece));
  }
  return OkStatus();
}

Result<std::vector<Tokens>> PiecesOf(const PerplexityOptions& options, std::string_view text,
                                     int64_t context) {
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          LoadTokenizer(options.model_dir));
  std::vector<Tokens> pieces;
  while (!text.empty()) {
    const size_t end = options.by_lines ? text.find('\n') : std::string_view::npos;
    LAMINA_RETURN_IF_ERROR(AddPieces(*tokenizer, text.substr(0, end), context, pieces));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  if (pieces.empty()) return InvalidArgument("the text has less than two tokens");
  return pieces;
}

}  // namespace

Result<Perplexity> MeasurePerplexity(const PerplexityOptions& options, std::string_view text,
                                     WorkerTeam& team) {
  LAMINA_ASSIGN_OR_RETURN(const ModelConfig config, ModelConfig::Load(options.model_dir));
  const int64_t context =
      options.context == 0 ? std::min(kContext, config.max_positions) : options.context;
  if (context < 2 || context > config.max_positions) {
    return InvalidArgument("a context of " + std::to_string(context) + " tokens, expected 2 to " +
                           std::to_string(config.max_positions) + ", the model's positions");
  }
  LAMINA_ASSIGN_OR_RETURN(const std::vector<Tokens> pieces, PiecesOf(options, text, context));
  int64_t all_tokens = 0;
  for (const Tokens& piece : pieces) {
    all_tokens += std::ssize(piece) - 1;
    for (const TokenId token : piece) {
      if (token < 0 || token >= config.vocab_size)
        return InvalidArgument("the tokenizer gives token " + std::to_string(token) +
                               ", but the model has " + std::to_string(config.vocab_size));
    }
  }
  LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Forward> forward,
                          Forward::Create(options, context, team));
  Perplexity result;
  for (const Tokens& piece : pieces) {
    LAMINA_RETURN_IF_ERROR(forward->Run(piece, [&](std::span<const float> logits, TokenId next) {
      result.negative_log_likelihood += NegativeLogLikelihood(logits, next);
      ++result.num_tokens;
    }));
    if (options.on_progress) options.on_progress(result.num_tokens, all_tokens, result.value());
  }
  return result;
}

}  // namespace lamina
