// Vectors of eight lanes in plain C++: what every other instruction set has to agree with. Compilers turn the loops
// into whatever the platform's baseline has.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "inline.h"

namespace { // internal linkage: see body.h

constexpr int kLanes = 8;

struct F {
  float v[kLanes];
};
struct I {
  int32_t v[kLanes];
};
struct Bytes {
  uint8_t v[4 * kLanes];
};

template <class To, class Function> TB_INLINE To each(Function f) {
  To out;
  for (int i = 0; i < kLanes; i++)
    out.v[i] = f(i);
  return out;
}
template <class To, class From> TB_INLINE To as(const From &from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
TB_INLINE int32_t wrapped(uint32_t x) { return static_cast<int32_t>(x); }
TB_INLINE uint32_t bits(int32_t x) { return static_cast<uint32_t>(x); }

TB_INLINE F load(const float *p) {
  F a;
  std::memcpy(a.v, p, sizeof a.v);
  return a;
}
TB_INLINE void store(float *p, const F &a) { std::memcpy(p, a.v, sizeof a.v); }
TB_INLINE F in_register(const F &a) { return a; }
TB_INLINE F set(float x) {
  return each<F>([&](int) { return x; });
}
TB_INLINE F operator+(const F &a, const F &b) {
  return each<F>([&](int i) { return a.v[i] + b.v[i]; });
}
TB_INLINE F operator-(const F &a, const F &b) {
  return each<F>([&](int i) { return a.v[i] - b.v[i]; });
}
TB_INLINE F operator*(const F &a, const F &b) {
  return each<F>([&](int i) { return a.v[i] * b.v[i]; });
}
TB_INLINE F operator/(const F &a, const F &b) {
  return each<F>([&](int i) { return a.v[i] / b.v[i]; });
}
TB_INLINE F where_at_least(const F &a, const F &bound, const F &value) {
  return each<F>([&](int i) { return a.v[i] >= bound.v[i] ? value.v[i] : 0.0f; });
}
TB_INLINE F min(const F &a, const F &b) {
  return each<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
TB_INLINE F max(const F &a, const F &b) {
  return each<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
TB_INLINE F abs(const F &a) {
  return each<F>([&](int i) { return std::fabs(a.v[i]); });
}
// To the nearest, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bits for a fraction. Larger numbers stay
// as they are.
TB_INLINE F round(const F &a) {
  return each<F>([&](int i) {
    const float x = a.v[i], shifted = x + 12582912.0f;
    return std::fabs(x) < 4194304.0f ? shifted - 12582912.0f : x;
  });
}
TB_INLINE bool any_nan(const F &a) {
  bool nan = false;
  for (int i = 0; i < kLanes; i++)
    nan |= a.v[i] != a.v[i];
  return nan;
}

TB_INLINE I load(const int32_t *p) {
  I a;
  std::memcpy(a.v, p, sizeof a.v);
  return a;
}
TB_INLINE void store(int32_t *p, const I &a) { std::memcpy(p, a.v, sizeof a.v); }
TB_INLINE I set(int32_t x) {
  return each<I>([&](int) { return x; });
}
TB_INLINE I operator+(const I &a, const I &b) {
  return each<I>([&](int i) { return wrapped(bits(a.v[i]) + bits(b.v[i])); });
}
TB_INLINE I operator-(const I &a, const I &b) {
  return each<I>([&](int i) { return wrapped(bits(a.v[i]) - bits(b.v[i])); });
}
TB_INLINE I operator^(const I &a, const I &b) {
  return each<I>([&](int i) { return a.v[i] ^ b.v[i]; });
}
TB_INLINE I shift_right(const I &a, int n) {
  return each<I>([&](int i) { return a.v[i] >> n; });
}
template <int n> TB_INLINE I shift_left(const I &a) {
  return each<I>([&](int i) { return wrapped(bits(a.v[i]) << n); });
}
// Numbers that int32 does not have give 0: the language leaves them open.
TB_INLINE I truncate(const F &a) {
  return each<I>([&](int i) { return std::fabs(a.v[i]) < 2147483648.0f ? static_cast<int32_t>(a.v[i]) : 0; });
}
TB_INLINE I to_int(const F &a) { return truncate(round(a)); }
TB_INLINE F to_float(const I &a) {
  return each<F>([&](int i) { return static_cast<float>(a.v[i]); });
}
TB_INLINE F as_float(const I &a) { return as<F>(a); }
TB_INLINE I as_int(const F &a) { return as<I>(a); }
TB_INLINE F look_up(const float *table, const I &index) {
  return each<F>([&](int i) { return table[index.v[i] & 7]; });
}
TB_INLINE F keep(const F &a, int n, const F &fill) {
  return each<F>([&](int i) { return i < n ? a.v[i] : fill.v[i]; });
}
TB_INLINE I keep(const I &a, int n) {
  return each<I>([&](int i) { return i < n ? a.v[i] : 0; });
}

TB_INLINE float reduce_min(const F &a) {
  float x = a.v[0];
  for (int i = 1; i < kLanes; i++)
    x = a.v[i] < x ? a.v[i] : x;
  return x;
}
TB_INLINE float reduce_max(const F &a) {
  float x = a.v[0];
  for (int i = 1; i < kLanes; i++)
    x = a.v[i] > x ? a.v[i] : x;
  return x;
}
TB_INLINE int32_t reduce_add(const I &a) {
  int32_t x = 0;
  for (int i = 0; i < kLanes; i++)
    x += a.v[i];
  return x;
}

// Eight float64 lanes.
struct Sum {
  double v[8];
};
TB_INLINE Sum zero_sum() { return {}; }
TB_INLINE void add(Sum &s, const F &a) {
  for (int i = 0; i < 8; i++)
    s.v[i] += static_cast<double>(a.v[i]);
}
TB_INLINE void add_product(Sum &s, const F &a, const F &b) {
  for (int i = 0; i < 8; i++)
    s.v[i] += static_cast<double>(a.v[i]) * static_cast<double>(b.v[i]);
}
TB_INLINE double total(const Sum &s) {
  const double *v = s.v;
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

using Doubles = Sum; // one for each lane
TB_INLINE Doubles zero_doubles() { return zero_sum(); }
TB_INLINE Doubles operator+(const Doubles &a, const Doubles &b) {
  return each<Doubles>([&](int i) { return a.v[i] + b.v[i]; });
}
TB_INLINE Doubles doubles(const F &a) {
  return each<Doubles>([&](int i) { return static_cast<double>(a.v[i]); });
}
TB_INLINE F one_over(const Doubles &a) {
  return each<F>([&](int i) { return static_cast<float>(1.0 / a.v[i]); });
}

TB_INLINE void zip(F a, F b, F &low, F &high) {
  low = each<F>([&](int i) { return (i % 2 == 0 ? a : b).v[i / 2]; });
  high = each<F>([&](int i) { return (i % 2 == 0 ? a : b).v[(kLanes + i) / 2]; });
}

TB_INLINE void store_bytes4(int8_t *p, const I &a, const I &b, const I &c, const I &d) {
  const I four[4] = {a, b, c, d};
  for (int q = 0; q < 4; q++)
    for (int i = 0; i < kLanes; i++)
      p[q * kLanes + i] = static_cast<int8_t>(four[q].v[i]);
}

TB_INLINE Bytes load_bytes(const uint8_t *p) {
  Bytes a;
  std::memcpy(a.v, p, sizeof a.v);
  return a;
}
TB_INLINE Bytes low_bits(const Bytes &a, int n) {
  Bytes out;
  for (int i = 0; i < 4 * kLanes; i++)
    out.v[i] = static_cast<uint8_t>(a.v[i] & ((1 << n) - 1));
  return out;
}
template <int n> TB_INLINE Bytes without_low_bits(const Bytes &a) {
  Bytes out;
  for (int i = 0; i < 4 * kLanes; i++)
    out.v[i] = static_cast<uint8_t>(a.v[i] >> n);
  return out;
}
TB_INLINE Bytes broadcast4(const int8_t *p) {
  Bytes out;
  for (int i = 0; i < 4 * kLanes; i += 4)
    std::memcpy(out.v + i, p, 4);
  return out;
}

} // namespace
