#include "kernel.h"

namespace tb {

const Kernel *const *built_kernels() {
  static const Kernel *const kernels[] = {
#if defined(TB_X86)
      &avx512vnni_kernel,
      &avxvnni_kernel,
      &avx512bw_kernel,
      &avx2_kernel,
#elif defined(TB_ARM)
      &neon_kernel,
#elif defined(TB_WASM_RELAXED)
      &wasm_relaxed_kernel,
#elif defined(TB_WASM_SIMD128)
      &wasm_simd128_kernel,
#endif
#if !defined(TB_WASM) // whose kernels run wherever the module does
      &portable_kernel,
#endif
      nullptr,
  };
  return kernels;
}

} // namespace tb
