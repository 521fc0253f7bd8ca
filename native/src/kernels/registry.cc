#include "kernel.h"

namespace tb {

const Kernel *const *built_kernels() {
  static const Kernel *const kernels[] = {
#if defined(TB_X86)
      &avx512vnni_kernel, &avxvnni_kernel, &avx512bw_kernel, &avx2_kernel,
#elif defined(TB_ARM)
      &neon_kernel,
#endif
      &portable_kernel,   nullptr,
  };
  return kernels;
}

} // namespace tb
