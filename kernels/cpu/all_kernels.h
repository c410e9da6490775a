// The table of all kernels for one vector type.
#pragma once

#include "kernels/cpu/attention_kernel.h"
#include "kernels/cpu/elementwise_kernel.h"
#include "kernels/cpu/linear_kernel.h"

namespace lamina {

template <class V>
constexpr KernelTable MakeKernels() {
  return {&LinearPanels<V>, &Attend<V>,     &RmsNormRow<V>,  &LayerNormRow<V>,
          &RotateHead<V>,   &SiluMulAll<V>, &GeluMulAll<V>,  &GeluAll<V>,
          &SoftCapAll<V>,   &ExpScaled<V>,  &ConvertFrom<V>, &ConvertTo<V>};
}

}  // namespace lamina
