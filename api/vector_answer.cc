#include "api/vector_answer.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>

#include "api/logprobs.h"

namespace lamina {
namespace {

using Kind = VectorForm::Kind;

constexpr size_t kVectorPieceBytes = size_t{64} << 10;

// The shortest that reads as the same number.
void AppendNumber(float value, std::string& json) {
  char text[32];
  json.append(text, std::to_chars(text, text + sizeof(text), value).ptr);
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

// The cosine of the angle between them, whatever their lengths are; 0 if one has none.
float Cosine(const std::vector<float>& a, const std::vector<float>& b) {
  const double lengths = std::sqrt(Dot(a, a)) * std::sqrt(Dot(b, b));
  return lengths > 0 ? static_cast<float>(std::clamp(Dot(a, b) / lengths, -1.0, 1.0)) : 0;
}

}  // namespace

void Finish(const VectorForm& form, std::vector<float>& vector) {
  vector.resize(std::min(vector.size(), static_cast<size_t>(form.num_values())));
  const double length = std::sqrt(Dot(vector, vector));
  if (!form.normalize || !(length > 0)) return;
  for (float& value : vector) value = static_cast<float>(static_cast<double>(value) / length);
}

std::string ToBase64(std::span<const std::byte> bytes) {
  std::string text((bytes.size() + 2) / 3 * 4 + 1, '\0');  // OpenSSL ends it with a zero
  const int length = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                                     reinterpret_cast<const unsigned char*>(bytes.data()),
                                     static_cast<int>(bytes.size()));
  text.resize(static_cast<size_t>(length));
  return text;
}

VectorAnswer::VectorAnswer(VectorForm form, std::string model, std::string request_id,
                           std::vector<std::vector<float>> vectors, const Usage& usage)
    : form_(std::move(form)),
      model_(std::move(model)),
      id_(std::move(request_id)),
      vectors_(std::move(vectors)),
      usage_(usage) {
  if (form_.kind != Kind::kScores && form_.kind != Kind::kRanking) return;
  for (size_t i = form_.num_queries; i < vectors_.size(); ++i) {
    const size_t document = i - form_.num_queries;
    ranks_.push_back(
        {document, Cosine(vectors_[form_.num_queries == 1 ? 0 : document], vectors_[i])});
  }
  vectors_.clear();
  if (form_.kind == Kind::kScores) return;
  std::ranges::stable_sort(ranks_, std::ranges::greater(), &Rank::score);
  if (form_.top_n > 0 && form_.top_n < std::ssize(ranks_))
    ranks_.resize(static_cast<size_t>(form_.top_n));
}

size_t VectorAnswer::num_entries() const {
  return form_.kind == Kind::kScores || form_.kind == Kind::kRanking ? ranks_.size()
                                                                     : vectors_.size();
}

bool VectorAnswer::Write(std::string& json) {
  if (!std::exchange(begun_, true)) json += Begin();
  for (; next_ < num_entries(); ++next_) {
    if (json.size() >= kVectorPieceBytes) return false;
    if (next_ > 0) json += ',';
    WriteEntry(next_, json);
  }
  json += End();
  return true;
}

std::string VectorAnswer::Begin() const {
  const std::string model = JsonString(model_);
  const auto created = std::chrono::duration_cast<std::chrono::seconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  const auto list = [&](const char* prefix) {
    return "{\"id\":" + JsonString(prefix + id_) +
           ",\"object\":\"list\",\"created\":" + std::to_string(created) + ",\"model\":" + model +
           ",\"data\":[";
  };
  switch (form_.kind) {
    case Kind::kEmbeddings: return list("embd-");
    case Kind::kScores: return list("score-");
    case Kind::kRanking:
      return "{\"id\":" + JsonString("rerank-" + id_) + ",\"model\":" + model + ",\"results\":[";
    case Kind::kOllama: return "{\"model\":" + model + ",\"embeddings\":[";
    case Kind::kOllamaPlain: return vectors_.empty() ? "{\"embedding\":[]" : "{\"embedding\":";
  }
  return "";
}

void VectorAnswer::WriteEntry(size_t i, std::string& json) const {
  switch (form_.kind) {
    case Kind::kEmbeddings:
      json += "{\"object\":\"embedding\",\"index\":" + std::to_string(i) + ",\"embedding\":";
      WriteVector(vectors_[i], json);
      json += '}';
      return;
    case Kind::kScores:
      json += "{\"index\":" + std::to_string(i) + ",\"object\":\"score\",\"score\":";
      AppendNumber(ranks_[i].score, json);
      json += '}';
      return;
    case Kind::kRanking:
      json += "{\"index\":" + std::to_string(ranks_[i].index);
      if (!form_.documents.empty())
        json += ",\"document\":{\"text\":" + JsonString(form_.documents[ranks_[i].index]) + "}";
      json += ",\"relevance_score\":";
      AppendNumber(ranks_[i].score, json);
      json += '}';
      return;
    case Kind::kOllama:
    case Kind::kOllamaPlain: WriteVector(vectors_[i], json); return;
  }
}

void VectorAnswer::WriteVector(const std::vector<float>& vector, std::string& json) const {
  if (form_.base64) {
    static_assert(std::endian::native == std::endian::little);
    json += '"' + ToBase64(std::as_bytes(std::span(vector))) + '"';
    return;
  }
  json += '[';
  for (size_t i = 0; i < vector.size(); ++i) {
    if (i > 0) json += ',';
    AppendNumber(vector[i], json);
  }
  json += ']';
}

std::string VectorAnswer::End() const {
  const std::string tokens = std::to_string(usage_.prompt_tokens);
  if (form_.kind == Kind::kOllama) return "],\"prompt_eval_count\":" + tokens + "}";
  if (form_.kind == Kind::kOllamaPlain) return "}";
  return "],\"usage\":{\"prompt_tokens\":" + tokens + ",\"total_tokens\":" + tokens + "}}";
}

}  // namespace lamina
