// What the CPU can multiply at best: the instructions of the kernel's inner loop on registers, nothing else.
#pragma once

#include <time.h>

#if defined(__x86_64__)
// A product and a sum of bytes, 32 multiplications in the one instruction; twelve sums, as many as a tile has.
#define TB_PAIR(n) "vpmaddubsw %%ymm14, %%ymm15, %%ymm13\n\tvpaddw %%ymm13, %%ymm" #n ", %%ymm" #n "\n\t"
inline void avx2_round() {
  __asm__ volatile(TB_PAIR(0) TB_PAIR(1) TB_PAIR(2) TB_PAIR(3) TB_PAIR(4) TB_PAIR(5) TB_PAIR(6) TB_PAIR(7) TB_PAIR(8)
                       TB_PAIR(9) TB_PAIR(10) TB_PAIR(11)::
                           : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                             "xmm11", "xmm13");
}
constexpr double kAvx2Macs = 12 * 32;

// The same for VNNI: one instruction, 64 multiplications. Encoded for AVX512-VNNI.
#define TB_DOT(n) "vpdpbusd %%zmm14, %%zmm15, %%zmm" #n "\n\t"
inline void avx512vnni_round() {
  __asm__ volatile(TB_DOT(0) TB_DOT(1) TB_DOT(2) TB_DOT(3) TB_DOT(4) TB_DOT(5) TB_DOT(6) TB_DOT(7) TB_DOT(8) TB_DOT(9)
                       TB_DOT(10) TB_DOT(11)::
                           : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10",
                             "xmm11");
}
constexpr double kAvx512VnniMacs = 12 * 64;
#endif

// CPU time of this thread, in seconds: other programs on the machine then count less.
inline double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Giga-multiplications a second of one thread; the best of five tries.
template <class Round> double measure_peak(Round round, double macs) {
  double best = 0.0;
  for (int attempt = 0; attempt < 5; attempt++) {
    constexpr int kRounds = 2000000;
    const double begin = thread_seconds();
    for (int i = 0; i < kRounds; i++)
      round();
    const double rate = kRounds * macs * 1e-9 / (thread_seconds() - begin);
    best = rate > best ? rate : best;
  }
  return best;
}
