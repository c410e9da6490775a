// From a request of another protocol to the chat request that asks for the same.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "api/answer_form.h"
#include "api/field_reader.h"
#include "api/request_reader.h"

namespace lamina {

struct Translation {
  // The body of a request to /v1/chat/completions, or to /v1/completions if `kind` says so, whose
  // checks are still to come: what has the same meaning there is only moved. A message of the
  // history in which a model reasoned has "reasoning_content".
  ApiKind kind = ApiKind::kChat;
  nlohmann::ordered_json body = nlohmann::ordered_json::object();
  std::unique_ptr<AnswerForm> form;
  // Set: it is the answer, and nothing is to be generated.
  std::optional<OutboundResponse> answer;
};

// A request's body: `fields` for checks, and with its keys in the client's order to take what goes
// on. Both are the same JSON, an object nested at most 100 deep.
struct ForeignBody {
  const nlohmann::json& fields;
  nlohmann::ordered_json& ordered;
};

// Fills `out` or says what is wrong, by the protocol's own names. A field that is not known or not
// supported is an error unless it has no bearing on the answer.
using Translate = std::optional<ApiError> (*)(ForeignBody body, const ServedModel& model,
                                              Translation& out);

// "list[index]".
std::string At(const std::string& list, size_t index);

// What "type" of an object is; "" if it is no string or `object` is none.
std::string TypeOf(const nlohmann::json& object);

// Moves the field of the body, if it is there and not null, to the field `as` of the chat request.
void MoveField(FieldReader& reader, nlohmann::ordered_json& body, const std::string& name,
               nlohmann::ordered_json& chat, const std::string& as);

// Fails with the name of a field that is not null and that `reader` was not asked for. `where`:
// what stands before the field's name, "tools[0]." for example.
void FailUnknown(FieldReader& reader, const std::string& where);

// Refuses every value but null and the one that means what is done anyway.
void RefuseOther(FieldReader& reader, const std::string& name, const nlohmann::json& harmless,
                 const std::string& why);

// Says that the model is to reason before it answers, or not to; an error unless it can do so.
// `field` is what asked for it.
std::optional<ApiError> ChooseReasoning(bool wanted, const std::string& field,
                                        const ServedModel& model, nlohmann::ordered_json& chat);

// The arguments of a call as the object that they are to be. What a limit cut off or the model got
// wrong is under "INVALID_JSON", as text.
nlohmann::ordered_json ArgumentsObject(const std::string& arguments);

}  // namespace lamina
