// What the C interface (api.cc) calls: one function for each thing that the library does, and the checks before it.
//
// The checks look at everything that comes from outside before anything is used, and throw a Failure (failure.h) that
// names the first thing that is wrong. What follows them may trust its arguments.
#pragma once

#include "kernels/kernel.h"
#include "ternarybert.h"

#include <cstddef>

namespace tb {

// The most inputs or outputs of a linear layer. No sum of products leaves 32 bits: 65536 * 255 * 128 < 2^31.
constexpr int kLargestLayer = 65536;

// check.cc
void check_config(const tb_config *config);
void check_batch(const tb_model &model, const tb_batch *batch);
void check_product(const tb_product *product);

// run.cc: the forward pass of a batch, `alone` without the model's other threads. Throws a Failure if `size` is wrong
// or numbers are not finite.
void run(const tb_model &model, const tb_batch &batch, int output, float *result, size_t size, bool alone);

// product.cc: a single product, for training loops, where weights change on every call.
void multiply(const tb_product &product, const Kernel &kernel, int threads);

// peak.cc: billions of multiplications per second of one thread that runs only the kernel's inner products, on
// registers.
double measure_peak(const Kernel &kernel);

} // namespace tb
