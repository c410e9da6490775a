#include "model/exported/term.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lamina {
namespace {

// The constants of exported programs have been through fp32 and through decimal text.
bool Near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

// x if `term` is x * factor, about; else null.
Term* ScaledBy(Term* term, double factor) {
  return term->Is(TermKind::kScale) && Near(term->key.number, factor) ? term->arg() : nullptr;
}

// x if `term` is x + number, about; else null.
Term* PlusNumber(Term* term, double number) {
  return term->Is(TermKind::kAddNumber) && Near(term->key.number, number) ? term->arg() : nullptr;
}

// x if `half` is x / 2 and `rest` is 1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)), the tanh
// approximation of GELU ("Gaussian Error Linear Units", section 2); else null.
Term* GeluTanhOf(Term* half, Term* rest) {
  Term* const x = ScaledBy(half, 0.5);
  Term* const tanh = PlusNumber(rest, 1);
  if (x == nullptr || tanh == nullptr || !tanh->Is(TermKind::kTanh)) return nullptr;
  Term* const sum = ScaledBy(tanh->arg(), 0.7978845608);  // sqrt(2 / pi)
  if (sum == nullptr || !sum->Is(TermKind::kAdd)) return nullptr;
  for (const auto& [first, second] :
       {std::pair(sum->arg(0), sum->arg(1)), std::pair(sum->arg(1), sum->arg(0))}) {
    Term* const cube = ScaledBy(second, 0.044715);
    if (first == x && cube != nullptr && cube->Is(TermKind::kPower) && cube->key.number == 3 &&
        cube->arg() == x)
      return x;
  }
  return nullptr;
}

TermKey Of(TermKind kind, Term* x) { return {.kind = kind, .args = {x}, .width = x->key.width}; }

}  // namespace

TermKey Recognised(TermKey product) {
  Term* const a = product.args[0];
  Term* const b = product.args[1];
  if (a == b) {
    TermKey square = Of(TermKind::kPower, a);
    square.number = 2;
    return square;
  }
  for (const auto& [first, second] : {std::pair(a, b), std::pair(b, a)}) {
    if (second->Is(TermKind::kSigmoid) && second->arg() == first) return Of(TermKind::kSilu, first);
    if (Term* const x = GeluTanhOf(first, second)) return Of(TermKind::kGeluTanh, x);
  }
  return product;
}

Term* Regrouped(Term* a, Term* b, TermTable& terms, int32_t node) {
  for (const auto& [sum, other] : {std::pair(a, b), std::pair(b, a)}) {
    // It pays only if `other` is known before the attention that the sum waits for.
    if (!sum->Is(TermKind::kAdd) || other->stage >= sum->stage) continue;
    for (const auto& [late, early] :
         {std::pair(sum->arg(0), sum->arg(1)), std::pair(sum->arg(1), sum->arg(0))}) {
      if (early->stage >= late->stage) continue;
      Term* const first = terms.Make(
          {.kind = TermKind::kAdd, .args = {early, other}, .width = sum->key.width}, node);
      return terms.Make({.kind = TermKind::kAdd, .args = {late, first}, .width = sum->key.width},
                        node);
    }
  }
  return nullptr;
}

std::optional<TermKey> RecognisedNorm(Term* x, Term* root) {
  if (!root->Is(TermKind::kInverseRoot) || !root->arg()->Is(TermKind::kAddNumber))
    return std::nullopt;
  Term* const mean = root->arg()->arg();
  if (!mean->Is(TermKind::kMean) || !mean->arg()->Is(TermKind::kPower) ||
      mean->arg()->key.number != 2)
    return std::nullopt;
  if (mean->arg()->arg() != x) return std::nullopt;
  // The same mean of squares over a centred x is the variance, which makes it a LayerNorm.
  const bool centred = x->Is(TermKind::kCentred) && x->key.group == mean->key.group;
  TermKey norm = Of(centred ? TermKind::kLayerNorm : TermKind::kRmsNorm, centred ? x->arg() : x);
  norm.group = mean->key.group;
  norm.number = root->arg()->key.number;
  return norm;
}

Term* TermTable::Make(TermKey key, int32_t node) {
  // Before the look-up, so that silu(x) and x * sigmoid(x) are the same term.
  if (key.kind == TermKind::kMul) key = Recognised(std::move(key));
  const auto [place, is_new] = by_key_.try_emplace(key, nullptr);
  if (is_new) {
    int stage = 0;
    for (const Term* arg : key.args) stage = std::max(stage, arg->stage);
    terms_.push_back({.key = std::move(key), .node = node, .stage = stage});
    place->second = &terms_.back();
  }
  return place->second;
}

Term* TermTable::MakeColumns(Term* of, const Columns& columns, int32_t node) {
  if (columns.AreAll(of->key.width)) return of;
  return Make(
      {.kind = TermKind::kColumns, .args = {of}, .width = columns.count(), .columns = columns},
      node);
}

}  // namespace lamina
