// Answers of Anthropic's Messages API: a message of content blocks, or its events.
#pragma once

#include <memory>
#include <string>

#include "api/answer_form.h"

namespace lamina {

std::unique_ptr<AnswerForm> NewMessagesAnswer(const std::string& model);

}  // namespace lamina
