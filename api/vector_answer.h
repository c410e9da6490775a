// The JSON of answers that are made of vectors of texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/responses.h"
#include "api/vector_form.h"

namespace lamina {

// Cuts a vector to the form's dimensions and, if it says so, makes it as long as 1. One that is 0
// stays so.
void Finish(const VectorForm& form, std::vector<float>& vector);

// RFC 4648, section 4. REQUIRES: less than 2^31 bytes.
std::string ToBase64(std::span<const std::byte> bytes);

// The whole answer, written piece by piece: as JSON, vectors are several times as large.
class VectorAnswer {
 public:
  // `vectors` are finished, in the order of the request's texts.
  VectorAnswer(VectorForm form, std::string model, std::string request_id,
               std::vector<std::vector<float>> vectors, const Usage& usage);

  // Appends the next piece to `json`, about 64 KiB or one vector; returns true if it was the last.
  bool Write(std::string& json);

 private:
  // How near a document is to its query.
  struct Rank {
    size_t index = 0;  // among the documents
    float score = 0;
  };

  size_t num_entries() const;
  std::string Begin() const;
  void WriteEntry(size_t i, std::string& json) const;
  std::string End() const;
  void WriteVector(const std::vector<float>& vector, std::string& json) const;

  VectorForm form_;
  std::string model_, id_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Rank> ranks_;
  Usage usage_;
  bool begun_ = false;
  size_t next_ = 0;
};

}  // namespace lamina
