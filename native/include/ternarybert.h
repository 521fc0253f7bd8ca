/* ternarybert: the native core's plain C interface.
 *
 * Every function is safe to call from several threads. Strings that are returned are static: never free them.
 */
#ifndef TERNARYBERT_H
#define TERNARYBERT_H

#include <stdint.h>

#if defined(_WIN32) && defined(TB_BUILD)
#define TB_API __declspec(dllexport)
#elif defined(_WIN32)
#define TB_API __declspec(dllimport)
#else
#define TB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, equal to the Python package's. */
TB_API const char *tb_version(void);

/* Instruction sets that kernels may use; the bits of tb_cpu_features(). */
enum tb_cpu_feature {
  TB_CPU_AVX2 = 1u << 0,
  TB_CPU_AVX_VNNI = 1u << 1,
  TB_CPU_AVX512BW = 1u << 2,   /* with AVX512F and AVX512VL */
  TB_CPU_AVX512VNNI = 1u << 3, /* with AVX512BW */
  TB_CPU_NEON = 1u << 4,
  TB_CPU_DOTPROD = 1u << 5,
};

/* What this CPU has and the operating system lets programs use. */
TB_API uint32_t tb_cpu_features(void);

#ifdef __cplusplus
}
#endif
#endif
