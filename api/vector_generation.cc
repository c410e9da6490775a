#include "api/vector_generation.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "api/vector_answer.h"

namespace lamina {

VectorGeneration::VectorGeneration(GenerationSpec spec, const Server& server,
                                   std::shared_ptr<Exchange> exchange)
    : Generation(std::move(spec), server, std::move(exchange)),
      vectors_(spec_.prompts.size()),
      num_open_(spec_.prompts.size()) {}

Status VectorGeneration::Start(MakeSink make_sink) {
  make_sink_ = std::move(make_sink);
  Status status = SubmitNext();
  if (!status.ok()) Abort();
  return status;
}

Status VectorGeneration::SubmitNext() {
  while (next_ < spec_.prompts.size() && std::ssize(running_) < spec_.vectors->max_at_once) {
    const Status status = Submit(next_);
    if (status.code() == StatusCode::kTryAgain && !running_.empty()) return OkStatus();
    LAMINA_RETURN_IF_ERROR(status);
    ++next_;
  }
  return OkStatus();
}

Status VectorGeneration::Submit(size_t text) {
  GenerateRequest request;
  request.prompt = spec_.prompts[text].tokens;
  request.max_new_tokens = 1;
  request.sampling.embeds = true;
  request.priority = spec_.options.priority;
  request.slo = spec_.options.slo;
  const auto part = static_cast<int>(text);
  LAMINA_ASSIGN_OR_RETURN(const RequestId id, engine_.Submit(std::move(request), make_sink_(part)));
  spec_.prompts[text].tokens = {};
  running_.emplace(part, id);
  return OkStatus();
}

bool VectorGeneration::OnEvent(int text, const TokenEvent& event) {
  if (!event.finish || running_.erase(text) == 0) return false;
  const auto fail = [&](const Status& why) {
    Fail(why);
    return true;
  };
  if (event.finish == FinishReason::kError)
    return fail(event.error.ok() ? InternalError("the request failed") : event.error);
  if (std::ssize(event.embedding) != spec_.vectors->width)
    return fail(InternalError("the model gave a vector of " +
                              std::to_string(event.embedding.size()) + " values instead of " +
                              std::to_string(spec_.vectors->width)));
  usage_.cached_tokens += event.num_cached;
  std::vector<float>& vector = vectors_[static_cast<size_t>(text)];
  vector = event.embedding;
  Finish(*spec_.vectors, vector);
  vector.shrink_to_fit();
  if (!held_.Change(vector.capacity() * sizeof(float), 0))
    return fail(
        TryAgain("answers that are not sent yet hold more memory than the server has for them; ask "
                 "for the vectors of fewer texts at a time"));
  if (const Status status = SubmitNext(); !status.ok()) return fail(status);
  if (--num_open_ > 0) return false;
  Complete();
  return true;
}

void VectorGeneration::Complete() {
  struct Answer {
    VectorAnswer writer;
    AnswerMemory::Share held;
  };
  // Shared because std::function wants to be copied.
  const std::shared_ptr<Answer> answer(
      new Answer{VectorAnswer(std::move(*spec_.vectors), spec_.model, spec_.options.request_id,
                              std::move(vectors_), usage_),
                 std::move(held_)});
  exchange_->RespondInPieces([answer](std::string& piece) { return answer->writer.Write(piece); });
}

void VectorGeneration::Abort() {
  for (const auto& [text, request] : running_) engine_.Abort(request);
  running_.clear();
}

void VectorGeneration::RespondError(const ApiError& error) {
  exchange_->Respond(ErrorResponse(error));
}

Status CheckVectors(const GenerationSpec& spec, int64_t max_model_len, int64_t max_values) {
  for (size_t i = 0; i < spec.prompts.size(); ++i) {
    const auto length = std::ssize(spec.prompts[i].tokens);
    if (length > 0 && length < max_model_len) continue;
    const std::string text = "text " + std::to_string(i);
    if (length == 0) return InvalidArgument(text + " is empty: it has no token to be embedded");
    return InvalidArgument(text + " has " + std::to_string(length) + " tokens; at most " +
                           std::to_string(max_model_len - 1) +
                           " are possible: cut it, or have it cut by 'truncate_prompt_tokens'");
  }
  const int64_t num_values = std::max<int64_t>(spec.vectors->num_values(), 1);
  if (std::ssize(spec.prompts) <= max_values / num_values) return OkStatus();
  return InvalidArgument("the vectors of " + std::to_string(spec.prompts.size()) + " texts have " +
                         std::to_string(num_values) + " values each; at most " +
                         std::to_string(max_values / num_values) +
                         " texts are possible in one request");
}

}  // namespace lamina
