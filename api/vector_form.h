// What a request for vectors of texts (embeddings), or for what is computed from them (scores,
// rankings), is answered with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lamina {

struct VectorForm {
  enum class Kind {
    kEmbeddings,   // OpenAI's /v1/embeddings
    kScores,       // vLLM's /score: of each pair of texts, how near they are to each other
    kRanking,      // Jina's and Cohere's /rerank: documents, those nearest to a query first
    kOllama,       // Ollama's /api/embed
    kOllamaPlain,  // Ollama's older /api/embeddings: of one text
  };
  Kind kind = Kind::kEmbeddings;
  // Whether vectors are made as long as 1, after they were cut.
  bool normalize = true;
  int64_t dimensions = 0;  // so many of a vector's first values are told; 0: all
  bool base64 = false;     // of little-endian float32, instead of a list of numbers

  // kScores, kRanking: so many of the first texts are compared with the others: one with each of
  // them, or as many as there are others, the n-th with the n-th.
  size_t num_queries = 0;
  int64_t top_n = 0;                   // kRanking: so many documents are told; 0: all
  std::vector<std::string> documents;  // kRanking: their texts, if they are to be told

  // What the model gives, ModelConfig::state_size().
  int64_t width = 0;
  // So many texts are given to the engine at a time, so that a request of many does not keep others
  // from being served between its own.
  int max_at_once = 1;

  int64_t num_values() const { return dimensions > 0 ? dimensions : width; }
};

}  // namespace lamina
