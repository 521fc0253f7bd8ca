#include "ternarybert.h"

// clock_gettime and inline assembly: what the measurement needs, gcc and clang have.
#if defined(__GNUC__)
#include "../bench/peak.h"

double tb_peak(void) {
#if defined(__x86_64__)
  const uint32_t features = tb_cpu_features();
  if (features & TB_CPU_AVX512VNNI) return measure_peak(avx512vnni_round, kAvx512VnniMacs);
  if (features & TB_CPU_AVX2) return measure_peak(avx2_round, kAvx2Macs);
#endif
  return 0.0;
}
#else
double tb_peak(void) { return 0.0; }
#endif
