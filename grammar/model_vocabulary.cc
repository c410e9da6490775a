#include "grammar/model_vocabulary.h"

#include <utility>

#include "text/tokenizer.h"

namespace lamina {

void ModelVocabulary::Begin() {
  MutexLock lock(mutex_);
  if (outcome_.valid()) return;
  outcome_ =
      std::async(std::launch::async, [dir = model_dir_, size = vocab_size_]() -> Outcome {
        LAMINA_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(dir));
        return Vocabulary::Of(*tokenizer, size);
      }).share();
}

Result<std::shared_ptr<const Vocabulary>> ModelVocabulary::Get() {
  Begin();
  std::shared_future<Outcome> outcome;
  {
    MutexLock lock(mutex_);
    outcome = outcome_;
  }
  return outcome.get();
}

}  // namespace lamina
