// Functions of a kernel are always inlined, so that vectors stay in registers.
#pragma once

#if defined(_MSC_VER) && !defined(__clang__)
#define TB_INLINE static __forceinline
#define TB_UNROLL
#elif defined(__clang__)
#define TB_INLINE static inline __attribute__((always_inline))
#define TB_UNROLL _Pragma("clang loop unroll(full)")
#else
#define TB_INLINE static inline __attribute__((always_inline))
#define TB_UNROLL _Pragma("GCC unroll 16")
#endif

#if defined(_MSC_VER) && !defined(__clang__)
#define TB_NOINLINE static __declspec(noinline)
#else
#define TB_NOINLINE static __attribute__((noinline))
#endif

#if defined(__GNUC__)
#define TB_PREFETCH(p) __builtin_prefetch(p)
#else
#define TB_PREFETCH(p) (void)(p)
#endif

namespace { // everything in a kernel has internal linkage: see body.h

template <int n> struct Constant {
  static constexpr int value = n;
};

// f(Constant<n>()) for an n of 1 .. largest that is known only at run time.
template <int largest, class Function> TB_INLINE void with_constant(int n, Function f) {
  if constexpr (largest > 0) {
    if (n == largest)
      f(Constant<largest>());
    else
      with_constant<largest - 1>(n, f);
  }
}

} // namespace
