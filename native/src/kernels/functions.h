// exp and GELU as numerics.py has them, with the same constants. Hexadecimal: a decimal would be rounded once more.
#pragma once

#include "several.h"

namespace {

// kGelu[k][piece]: the coefficient of f^k in the piece of h(t) = t (1 - Phi(t)). Eight pieces: one vector holds a
// power.
constexpr float kGelu[7][8] = {
    {0x0.0p+0f, 0x1.5c19820000000p-3f, 0x1.9a769e0000000p-4f, 0x1.c2a49e0000000p-6f, 0x1.0966a60000000p-8f,
     0x1.5baba80000000p-12f, 0x1.0083420000000p-16f, 0x1.acaf5e0000000p-22f},
    {0x1.7ffeee0000000p-2f, 0x1.2fdd740000000p-11f, -0x1.87935c0000000p-4f, -0x1.6baa2e0000000p-5f,
     -0x1.2596200000000p-7f, -0x1.e523340000000p-11f, -0x1.af000e0000000p-15f, -0x1.a49f0a0000000p-20f},
    {-0x1.cb730a0000000p-3f, -0x1.f29b1a0000000p-4f, 0x1.2928420000000p-7f, 0x1.c0008a0000000p-6f,
     0x1.1e12b20000000p-7f, 0x1.396e0e0000000p-10f, 0x1.56e8840000000p-14f, 0x1.8ad7a60000000p-19f},
    {-0x1.8c33f40000000p-12f, 0x1.be2bf80000000p-5f, 0x1.8b72420000000p-6f, -0x1.5fb81c0000000p-8f,
     -0x1.345ee00000000p-8f, -0x1.e8bd9a0000000p-11f, -0x1.5152d60000000p-14f, -0x1.cbd8fc0000000p-19f},
    {0x1.6994640000000p-6f, 0x1.f4e49c0000000p-10f, -0x1.8c15620000000p-7f, -0x1.3429260000000p-9f,
     0x1.695f560000000p-10f, 0x1.ee46b00000000p-12f, 0x1.b5659c0000000p-15f, 0x1.5cff920000000p-19f},
    {-0x1.6899320000000p-10f, -0x1.92f9fc0000000p-8f, 0x1.af8c9c0000000p-10f, 0x1.a81ef20000000p-10f,
     -0x1.3544040000000p-13f, -0x1.372d2c0000000p-13f, -0x1.5f05ba0000000p-16f, -0x1.3f2c360000000p-20f},
    {-0x1.064f0e0000000p-10f, 0x1.3144060000000p-10f, 0x1.1196ae0000000p-13f, -0x1.417bf60000000p-12f,
     -0x1.e7d52c0000000p-17f, 0x1.7b5ff80000000p-16f, 0x1.0850280000000p-18f, 0x1.08ea040000000p-22f},
};

constexpr float kGeluTanh[7][8] = {
    {0x0.0p+0f, 0x1.5c3da60000000p-3f, 0x1.9b5ad00000000p-4f, 0x1.bdaaa80000000p-6f, 0x1.dcc2be0000000p-9f,
     0x1.cbcdde0000000p-13f, 0x1.58b4ba0000000p-18f, 0x1.53f1fa0000000p-25f},
    {0x1.7ffee00000000p-2f, 0x1.a10a640000000p-11f, -0x1.88519e0000000p-4f, -0x1.701de40000000p-5f,
     -0x1.1cb43a0000000p-7f, -0x1.7612400000000p-11f, -0x1.7099940000000p-16f, -0x1.cfafb80000000p-23f},
    {-0x1.cb71680000000p-3f, -0x1.f1f52c0000000p-4f, 0x1.1821c00000000p-7f, 0x1.c5621e0000000p-6f,
     0x1.24f4ec0000000p-7f, 0x1.1516760000000p-10f, 0x1.70091c0000000p-15f, 0x1.28c88c0000000p-21f},
    {-0x1.9f56be0000000p-12f, 0x1.bd77320000000p-5f, 0x1.8aa7c40000000p-6f, -0x1.4c5d5e0000000p-8f,
     -0x1.435e0a0000000p-8f, -0x1.e544860000000p-11f, -0x1.bc3b200000000p-15f, -0x1.c5e8e20000000p-21f},
    {0x1.6c1a060000000p-6f, 0x1.b7bbaa0000000p-10f, -0x1.822f2a0000000p-7f, -0x1.4db80c0000000p-9f,
     0x1.6dc2a40000000p-10f, 0x1.0cb4400000000p-11f, 0x1.5578b00000000p-15f, 0x1.ac24ba0000000p-21f},
    {-0x1.7a02300000000p-10f, -0x1.8d57300000000p-8f, 0x1.a04e640000000p-10f, 0x1.a4285c0000000p-10f,
     -0x1.aba42e0000000p-14f, -0x1.67f6f20000000p-13f, -0x1.37790e0000000p-16f, -0x1.ca8a7a0000000p-22f},
    {-0x1.0729e60000000p-10f, 0x1.3363540000000p-10f, 0x1.e0013e0000000p-14f, -0x1.2b36ec0000000p-12f,
     -0x1.e86d300000000p-16f, 0x1.c62be80000000p-16f, 0x1.000b4e0000000p-18f, 0x1.a7d0900000000p-24f},
};

constexpr float kGeluLast = 0x1.7ffffe0000000p+2f;
constexpr float kGeluPieces = 0x1.5555560000000p+0f; // 1 / 0.75

// max(x, 0) - h(|x|). As exp(), for a vector F or several.
template <class V> TB_INLINE V gelu(V x, const float (&powers)[7][8]) {
  const V u = min(abs(x), set(kGeluLast)) * set(kGeluPieces);
  const auto piece = truncate(u);
  const V f = u - to_float(piece);
  V h = look_up(powers[6], piece);
  TB_UNROLL for (int k = 5; k >= 0; k--) h = in_step(h * f + look_up(powers[k], piece));
  return max(x, set(0.0f)) - h;
}

constexpr float kExpLowest = -80.0f;
constexpr float kExpLog2e = 0x1.7154760000000p+0f;
constexpr float kExpLn2High = 0x1.6300000000000p-1f;
constexpr float kExpLn2Low = -0x1.bd01060000000p-13f;
constexpr float kExpPowers[5] = {0x1.0000000000000p-1f, 0x1.5554dc0000000p-3f, 0x1.55551a0000000p-5f,
                                 0x1.120b6c0000000p-7f, 0x1.6d11060000000p-10f};

// e^x for x <= 0. max has its arguments in the order that lets NaN through.
template <class V> TB_INLINE V exp(V x) {
  x = max(set(kExpLowest), x);
  const V n = in_step(round(x * set(kExpLog2e)));
  const V r = (x - n * set(kExpLn2High)) - n * set(kExpLn2Low);
  V q = in_step(r * set(kExpPowers[4]) + set(kExpPowers[3]));
  TB_UNROLL for (int k = 2; k >= 0; k--) q = in_step(q * r + set(kExpPowers[k]));
  const V y = ((q * r) * r + r) + set(1.0f);
  return as_float(as_int(y) + shift_left<23>(to_int(n)));
}

} // namespace
