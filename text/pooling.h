// What a checkpoint says of how a text's vector is made of the hidden states of its tokens.
#pragma once

#include <string>

#include "base/status.h"

namespace lamina {

// OK if the model's folder or GGUF file says nothing of it, or that the vector is the last token's,
// which is what lamina computes. kUnimplemented if it is made otherwise: of all tokens, of the
// first one, or by layers of its own. Other errors are those of reading the files: modules.json and
// those that it names, in the form of sentence-transformers, or the GGUF key
// ARCHITECTURE.pooling_type. Messages name the file within the folder, as they are for clients.
Status CheckPooling(const std::string& model_path);

}  // namespace lamina
