// Vectors of texts: each text is a prompt of which the engine tells the hidden state of the last
// token, and the answer follows when all are there.
#pragma once

#include <map>
#include <vector>

#include "api/generation.h"

namespace lamina {

// A part is a text.
class VectorGeneration final : public Generation {
 public:
  // Borrows what `server` has. REQUIRES: spec.vectors.
  VectorGeneration(GenerationSpec spec, const Server& server, std::shared_ptr<Exchange> exchange);

  Status Start(MakeSink make_sink) override;
  bool OnEvent(int text, const TokenEvent& event) override;
  void Abort() override;

 private:
  // Gives the engine the next texts, as many as it may have at a time. Where it has no room for one
  // while it works on others, that one waits for them.
  Status SubmitNext();
  Status Submit(size_t text);
  void Complete();
  void RespondError(const ApiError& error) override;

  MakeSink make_sink_;
  std::map<int, RequestId> running_;         // by text
  std::vector<std::vector<float>> vectors_;  // by text
  size_t next_ = 0;                          // text
  size_t num_open_ = 0;
};

// How large the answer becomes, in values of vectors. kInvalidArgument if that is more than
// `max_values`, if a text has no token, or if one does not fit into the model's context.
Status CheckVectors(const GenerationSpec& spec, int64_t max_model_len, int64_t max_values);

}  // namespace lamina
