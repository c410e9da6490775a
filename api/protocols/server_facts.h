// What clients of Ollama and llama.cpp ask a server about itself.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "api/request_reader.h"
#include "wire/engine_messages.h"

namespace lamina {

struct ServerFacts {
  const ServedModel& model;
  const EngineStatus& status;
  int64_t max_model_len = 0;
  int64_t created = 0;  // when serving began, Unix seconds
};

// GET /api/tags, GET /api/ps and POST /api/show. A model's size is what its weights take on all
// nodes together; its digest is made of its name and place, and not of its weights.
nlohmann::ordered_json OllamaTags(const ServerFacts& facts);
nlohmann::ordered_json OllamaProcesses(const ServerFacts& facts);
nlohmann::ordered_json OllamaShow(const ServerFacts& facts);

// GET /props and GET /slots. A slot is there for each sequence that can be decoded at once; which
// of them has which sequence is not told.
nlohmann::ordered_json LlamaProps(const ServerFacts& facts);
nlohmann::ordered_json LlamaSlots(const ServerFacts& facts);

}  // namespace lamina
