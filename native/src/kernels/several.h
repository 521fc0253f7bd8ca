// Several vectors that go through the same operations side by side: each operation is done for all of them before the
// next. A chain of operations waits for its own results; with the chains one after the other, a CPU looks ahead too
// few instructions to find others to do meanwhile, and compilers do not change the order.
#pragma once

#include "inline.h"

namespace {

template <class T, int n> struct Several {
  T v[n];
};

template <int n, class T, class Function> TB_INLINE auto each(const Several<T, n> &a, Function f) {
  Several<decltype(f(a.v[0])), n> out;
  TB_UNROLL for (int i = 0; i < n; i++) out.v[i] = f(a.v[i]);
  return out;
}
template <int n, class T, class U, class Function>
TB_INLINE auto each(const Several<T, n> &a, const Several<U, n> &b, Function f) {
  Several<decltype(f(a.v[0], b.v[0])), n> out;
  TB_UNROLL for (int i = 0; i < n; i++) out.v[i] = f(a.v[i], b.v[i]);
  return out;
}

template <int n> using SeveralF = Several<F, n>;
template <int n> using SeveralI = Several<I, n>;

template <class T, int n> TB_INLINE Several<T, n> operator+(const Several<T, n> &a, const Several<T, n> &b) {
  return each(a, b, [](T x, T y) { return x + y; });
}
template <int n> TB_INLINE SeveralF<n> operator-(const SeveralF<n> &a, const SeveralF<n> &b) {
  return each(a, b, [](F x, F y) { return x - y; });
}
template <int n> TB_INLINE SeveralF<n> operator*(const SeveralF<n> &a, const SeveralF<n> &b) {
  return each(a, b, [](F x, F y) { return x * y; });
}
// With the same vector for all.
template <int n> TB_INLINE SeveralF<n> operator+(const SeveralF<n> &a, F b) {
  return each(a, [b](F x) { return x + b; });
}
template <int n> TB_INLINE SeveralF<n> operator-(const SeveralF<n> &a, F b) {
  return each(a, [b](F x) { return x - b; });
}
template <int n> TB_INLINE SeveralF<n> operator*(const SeveralF<n> &a, F b) {
  return each(a, [b](F x) { return x * b; });
}
template <int n> TB_INLINE SeveralF<n> min(const SeveralF<n> &a, F b) {
  return each(a, [b](F x) { return min(x, b); });
}
template <int n> TB_INLINE SeveralF<n> max(F a, const SeveralF<n> &b) {
  return each(b, [a](F x) { return max(a, x); });
}
template <int n> TB_INLINE SeveralF<n> max(const SeveralF<n> &a, F b) {
  return each(a, [b](F x) { return max(x, b); });
}
template <int n> TB_INLINE SeveralF<n> abs(const SeveralF<n> &a) {
  return each(a, [](F x) { return abs(x); });
}
template <int n> TB_INLINE SeveralF<n> round(const SeveralF<n> &a) {
  return each(a, [](F x) { return round(x); });
}
template <int n> TB_INLINE SeveralI<n> to_int(const SeveralF<n> &a) {
  return each(a, [](F x) { return to_int(x); });
}
template <int n> TB_INLINE SeveralI<n> truncate(const SeveralF<n> &a) {
  return each(a, [](F x) { return truncate(x); });
}
template <int n> TB_INLINE SeveralF<n> to_float(const SeveralI<n> &a) {
  return each(a, [](I x) { return to_float(x); });
}
template <int n> TB_INLINE SeveralI<n> as_int(const SeveralF<n> &a) {
  return each(a, [](F x) { return as_int(x); });
}
template <int n> TB_INLINE SeveralF<n> as_float(const SeveralI<n> &a) {
  return each(a, [](I x) { return as_float(x); });
}
template <int bits, int n> TB_INLINE SeveralI<n> shift_left(const SeveralI<n> &a) {
  return each(a, [](I x) { return shift_left<bits>(x); });
}
template <int n> TB_INLINE SeveralF<n> look_up(const float *table, const SeveralI<n> &index) {
  return each(index, [table](I x) { return look_up(table, x); });
}

// All of them are computed before what follows: otherwise gcc puts what depends on one behind it, one chain after the
// other again.
TB_INLINE F in_step(F a) { return a; }
template <int n> TB_INLINE SeveralF<n> in_step(const SeveralF<n> &a) {
  return each(a, [](F x) { return in_register(x); });
}

// Vectors of `step` numbers from one to the next.
template <int n> TB_INLINE SeveralF<n> load_several(const float *p, int step) {
  SeveralF<n> a;
  TB_UNROLL for (int i = 0; i < n; i++) a.v[i] = load(p + i * step);
  return a;
}
// As many vectors as the first argument.
TB_INLINE F load_as(F, const float *p) { return load(p); }
template <int n> TB_INLINE SeveralF<n> load_as(const SeveralF<n> &, const float *p) {
  return load_several<n>(p, kLanes);
}

} // namespace
