// What an exported program computes from a row, as expressions: small ones, which the operators of
// a graph are recognised in. An RMSNorm, for example, comes as six of PyTorch's operators. Equal
// expressions are one Term, so that a pattern compares pointers.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "model/exported/layout.h"
#include "model/tracer.h"

namespace lamina {

struct Term;

enum class TermKind {
  kValue,        // a value of the graph; id
  kLinear,       // args[0]; weight, bias, transposed
  kColumns,      // some elements of args[0]; columns
  kAdd,          // args[0] + args[1]
  kMul,          // args[0] * args[1]
  kScale,        // args[0] * number
  kAddNumber,    // args[0] + number
  kPower,        // args[0] ^ number
  kNegate,       // -args[0]
  kTanh,         // of args[0], as the next ones
  kSigmoid,      //
  kSilu,         //
  kGelu,         // by the error function
  kGeluTanh,     // by its tanh formula
  kRelu,         //
  kMean,         // of each `group` elements
  kCentred,      // args[0] minus the mean of each `group` elements
  kInverseRoot,  // args[0] ^ -0.5
  // Of each `group` elements; number: eps; weight (-1: none), number2: what is added to its
  // elements.
  kRmsNorm,
  kLayerNorm,  // likewise, with bias (-1: none)
  kRotated,    // the pairs (a, b) of each head of args[0] as (-b, a); interleaved
  // args[0] by the cosine of its pairs' angles; table, interleaved, group: the head's elements,
  // number: a factor.
  kTimesCos,
  kTimesSin,  // the pairs of args[0] as (-b, a), by the sine; likewise
  kRope,      // kTimesCos + kTimesSin over the first elements of each head of `group` elements
};

// Fields that a kind does not name keep their defaults.
struct TermKey {
  TermKind kind = TermKind::kValue;
  std::vector<Term*> args = {};
  int64_t width = 0;  // elements of a row
  int64_t id = -1;
  double number = 0;
  double number2 = 0;
  int64_t group = 0;
  int32_t weight = -1;  // nodes of the program
  int32_t bias = -1;
  int32_t table = -1;
  bool transposed = false;
  bool interleaved = false;
  Columns columns = {};
  friend auto operator<=>(const TermKey&, const TermKey&) = default;
};

struct Term {
  TermKey key;
  int32_t node = -1;  // of the program: the first one that made it
  // Of the attentions that it depends on, the number of the last one, from 1.
  int stage = 0;
  std::optional<Tensor> tensor = {};  // once it is an operator of the graph

  bool Is(TermKind kind) const { return key.kind == kind; }
  Term* arg(size_t i = 0) const { return key.args[i]; }
};

// Owns terms. Making one may recognise a larger one: the product of x / 2 and 1 + tanh(...) is a
// kGeluTanh.
class TermTable {
 public:
  Term* Make(TermKey key, int32_t node);

  // Elements of a term; all of them are the term itself.
  Term* MakeColumns(Term* of, const Columns& columns, int32_t node);

 private:
  std::deque<Term> terms_;
  std::map<TermKey, Term*> by_key_;
};

// What `term` is if it is x * sigmoid(x), x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) or
// a product with itself; else itself.
TermKey Recognised(TermKey product);

// The same sum, of which the part that does not depend on the last attention is added first:
// (attention + mlp) + x is attention + (mlp + x). A context then has one value where it would have
// two, and the sum waits for nothing. Null if it stands so already.
Term* Regrouped(Term* a, Term* b, TermTable& terms, int32_t node);

// x / sqrt(mean(x^2) + eps), where `root` is the second factor; also of a centred x, which makes it
// a LayerNorm. Nothing if it is neither.
std::optional<TermKey> RecognisedNorm(Term* x, Term* root);

}  // namespace lamina
