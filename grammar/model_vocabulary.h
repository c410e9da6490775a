// The vocabulary of a model's folder, read when it is needed or before.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "base/status.h"
#include "grammar/vocabulary.h"

namespace lamina {

// Thread: any.
class ModelVocabulary {
 public:
  // Of the tokens that a model of `vocab_size` can choose. Reads nothing yet.
  ModelVocabulary(std::string model_dir, int64_t vocab_size)
      : model_dir_(std::move(model_dir)), vocab_size_(vocab_size) {}

  // Begins to read on a thread of its own, unless that has begun.
  void Begin();
  // Waits until it is read, about a second for 128,000 tokens. Errors are those of LoadTokenizer.
  Result<std::shared_ptr<const Vocabulary>> Get();

 private:
  using Outcome = Result<std::shared_ptr<const Vocabulary>>;

  const std::string model_dir_;
  const int64_t vocab_size_;
  Mutex mutex_;
  std::shared_future<Outcome> outcome_ GUARDED_BY(mutex_);
};

}  // namespace lamina
