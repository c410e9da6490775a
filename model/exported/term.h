// What an exported program computes from a row, as expressions. They are smaller than the operators
// of a graph, which are recognised in them: an RMSNorm, for example, comes as six of PyTorch's
// operators. Equal expressions are one Term, so that a pattern compares pointers.
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

// Each kind says what it computes and which fields of TermKey it uses besides args and width.
enum class TermKind {
  kValue,        // a value of the graph; id
  kLinear,       // args[0] times a matrix; weight, bias (-1: none), transposed
  kColumns,      // some elements of args[0]; columns
  kAdd,          // args[0] + args[1]
  kMul,          // args[0] * args[1]
  kScale,        // args[0] * number
  kAddNumber,    // args[0] + number
  kPower,        // args[0] ^ number
  kNegate,       // -args[0]
  kTanh,         // of args[0]
  kSigmoid,      // of args[0]
  kSilu,         // of args[0]
  kGelu,         // of args[0], by the error function
  kGeluTanh,     // of args[0], by the tanh approximation
  kRelu,         // of args[0]
  kMean,         // of each `group` elements of args[0]
  kCentred,      // args[0] minus the mean of each `group` elements
  kInverseRoot,  // args[0] ^ -0.5
  kSoftmax,      // over all elements of args[0]
  kSum,          // of all elements of args[0]
  kLargest,      // the `width` largest elements of args[0], the largest first
  kLargestAt,    // which elements these are
  kShares,       // args[0] divided by its sum
  // A mixture of experts over args[0], chosen and weighted by the router's logits args[1]; id:
  // index into Importer::experts_; group: experts per token; number: 1 if the softmax is over all
  // logits, 0 if over those of the chosen experts.
  kExperts,
  // args[1] times the sigmoid of args[0], which has one element.
  kSigmoidGate,
  // RMSNorm of each `group` elements of args[0]; number: eps; weight (-1: none); number2: what is
  // added to the weight's elements.
  kRmsNorm,
  // LayerNorm of each `group` elements; the fields of kRmsNorm, and bias (-1: none).
  kLayerNorm,
  // The pairs (a, b) of each head of args[0] as (-b, a); interleaved.
  kRotated,
  // args[0] times the cosine of its pairs' angles; table, interleaved; group: elements of a head;
  // number: a factor.
  kTimesCos,
  // The pairs (a, b) of args[0] as (-b, a), times the sine of their angles; the fields of
  // kTimesCos.
  kTimesSin,
  // kTimesCos + kTimesSin over the first elements of each head, whose other elements stay; the
  // fields of kTimesCos.
  kRope,
};

// What makes two terms equal. Fields that a kind does not use keep their defaults.
struct TermKey {
  TermKind kind = TermKind::kValue;
  std::vector<Term*> args = {};
  int64_t width = 0;  // elements of a row
  int64_t id = -1;
  double number = 0;
  double number2 = 0;
  int64_t group = 0;
  int32_t weight = -1;  // index into the program's nodes
  int32_t bias = -1;    // index into the program's nodes
  int32_t table = -1;   // index into Importer::tables_
  bool transposed = false;
  bool interleaved = false;
  Columns columns = {};
  friend auto operator<=>(const TermKey&, const TermKey&) = default;
};

// An expression. Owned by a TermTable, whose terms never move.
struct Term {
  TermKey key;
  // The node of the program that made it first, for messages and names.
  int32_t node = -1;
  // The number, from 1, of the last attention that it depends on. 0: none.
  int stage = 0;
  // Its operator of the graph, once it has one.
  std::optional<Tensor> tensor = {};

  bool Is(TermKind kind) const { return key.kind == kind; }
  Term* arg(size_t i = 0) const { return key.args[i]; }
};

// Owns terms and keeps them unique. Thread: owner.
class TermTable {
 public:
  // The term of that key, new or known. A product that is a larger operator becomes that operator
  // (Recognised). `node` is the program's node that asks for it.
  Term* Make(TermKey key, int32_t node);

  // The elements `columns` of a term; the term itself if that is all of them in order.
  Term* MakeColumns(Term* of, const Columns& columns, int32_t node);

 private:
  std::deque<Term> terms_;
  std::map<TermKey, Term*> by_key_;
};

// What a product is: kSilu for x * sigmoid(x), kGeluTanh for x / 2 * (1 + tanh(sqrt(2 / pi) * (x +
// 0.044715 x^3))), kPower for a term times itself; else the product.
TermKey Recognised(TermKey product);

// The sum a + b with the part that does not depend on the last attention added first: (attention +
// mlp) + x becomes attention + (mlp + x). The context of the cut then holds one value instead of
// two, and that part can be added while the attention runs. Null if there is nothing to regroup.
Term* Regrouped(Term* a, Term* b, TermTable& terms, int32_t node);

// The norm that the product of `x` and `root` is: an RMSNorm if root is 1 / sqrt(mean(x^2) + eps),
// a LayerNorm if moreover x is something minus its own mean. Nothing if it is neither.
std::optional<TermKey> RecognisedNorm(Term* x, Term* root);

}  // namespace lamina
