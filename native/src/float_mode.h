// Round to nearest and keep denormals, whatever mode the caller has set: numerics.py requires both.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#endif

namespace tb {

class FloatMode {
public:
  FloatMode() : before_(get()) { set(kDefault); }
  ~FloatMode() { set(before_); }
  FloatMode(const FloatMode &) = delete;
  FloatMode &operator=(const FloatMode &) = delete;

private:
#if defined(__x86_64__) || defined(_M_X64)
  static constexpr uint64_t kDefault = 0x1f80; // all exceptions masked
  static uint64_t get() { return _mm_getcsr(); }
  static void set(uint64_t mode) { _mm_setcsr(static_cast<unsigned>(mode)); }
#elif defined(__aarch64__)
  static constexpr uint64_t kDefault = 0;
  static uint64_t get() {
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set(uint64_t mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#else
  static constexpr uint64_t kDefault = 0;
  static uint64_t get() { return 0; }
  static void set(uint64_t) {}
#endif

  const uint64_t before_;
};

} // namespace tb
