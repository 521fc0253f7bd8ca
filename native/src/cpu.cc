// The usable instruction sets: the CPU must have them and the operating system must save their registers.
#include "ternarybert.h"

#if defined(__x86_64__) || defined(_M_X64)

#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif

namespace {

struct Registers {
  uint32_t eax, ebx, ecx, edx;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf) {
#if defined(_MSC_VER)
  int r[4];
  __cpuidex(r, static_cast<int>(leaf), static_cast<int>(subleaf));
  return {
      .eax = static_cast<uint32_t>(r[0]),
      .ebx = static_cast<uint32_t>(r[1]),
      .ecx = static_cast<uint32_t>(r[2]),
      .edx = static_cast<uint32_t>(r[3]),
  };
#else
  Registers r{};
  __cpuid_count(leaf, subleaf, r.eax, r.ebx, r.ecx, r.edx);
  return r;
#endif
}

// The register sets that the operating system saves on a context switch (XCR0).
uint64_t saved_registers() {
#if defined(_MSC_VER)
  return _xgetbv(0);
#else
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<uint64_t>(high) << 32) | low;
#endif
}

constexpr bool bit(uint32_t word, int position) { return (word >> position) & 1u; }

uint32_t detect() {
  if (cpuid(0, 0).eax < 7) return 0;
  const bool osxsave = bit(cpuid(1, 0).ecx, 27);
  const uint64_t saved = osxsave ? saved_registers() : 0;
  const bool ymm = (saved & 0x06) == 0x06;
  const bool zmm = (saved & 0xe6) == 0xe6;

  const Registers leaf7 = cpuid(7, 0);
  const Registers leaf7_1 = leaf7.eax >= 1 ? cpuid(7, 1) : Registers{};
  uint32_t features = 0;
  if (ymm && bit(leaf7.ebx, 5)) {
    features |= TB_CPU_AVX2;
    if (bit(leaf7_1.eax, 4)) features |= TB_CPU_AVX_VNNI;
  }
  const bool avx512f = bit(leaf7.ebx, 16), avx512bw = bit(leaf7.ebx, 30), avx512vl = bit(leaf7.ebx, 31);
  if (zmm && avx512f && avx512bw && avx512vl) {
    features |= TB_CPU_AVX512BW;
    if (bit(leaf7.ecx, 11)) features |= TB_CPU_AVX512VNNI;
  }
  return features;
}

} // namespace

#elif defined(__aarch64__) || defined(_M_ARM64)

#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace {

uint32_t detect() {
  uint32_t features = TB_CPU_NEON; // part of every 64-bit ARM
#if defined(__linux__)
  constexpr unsigned long kHwcapAsimdDp = 1ul << 20;
  if (getauxval(AT_HWCAP) & kHwcapAsimdDp) features |= TB_CPU_DOTPROD;
#elif defined(__APPLE__)
  int present = 0;
  size_t size = sizeof present;
  if (sysctlbyname("hw.optional.arm.FEAT_DotProd", &present, &size, nullptr, 0) == 0 && present)
    features |= TB_CPU_DOTPROD;
#endif
  return features;
}

} // namespace

#else

namespace {
uint32_t detect() { return 0; }
} // namespace

#endif

// Detected once: in a virtual machine every cpuid instruction traps to the host, which takes as long as a small
// product.
extern "C" uint32_t tb_cpu_features(void) {
  static const uint32_t features = detect();
  return features;
}
