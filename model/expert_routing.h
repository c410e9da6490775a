// The ways in which models weight the experts of a row (model/graph.h, OpKind::kExperts).
#pragma once

namespace lamina {

// How a row's experts are weighted.
enum class ExpertRouting {
  kSoftmax,         // outputs, by the softmax over the logits of these experts
  kSoftmaxOverAll,  // outputs, by the softmax over all logits
  kSigmoidInputs,   // what an expert reads is x times the sigmoid of its logit; outputs are not
};

}  // namespace lamina
