// The table of all kernels for one vector type. Only the files kernels_<isa>.cc include this: it
// instantiates every kernel.
#pragma once

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/elementwise_kernel.h"
#include "kernels/cpu/linear_kernel.h"

namespace lamina {

// In the order in which KernelTable declares them.
template <class V>
constexpr KernelTable MakeKernels() {
  return {&LinearPanels<V>, &Attend<V>,      &RmsNormRow<V>,   &LayerNormRow<V>, &RotateHead<V>,
          &SiluMulAll<V>,   &GeluMulAll<V>,  &SwigluOaiAll<V>, &GeluAll<V>,      &SoftCapAll<V>,
          &ExpScaled<V>,    &ConvertFrom<V>, &ConvertTo<V>,    &RoundScaled<V>};
}

}  // namespace lamina
