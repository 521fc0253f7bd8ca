// One product by itself, for programs that train a model and whose weights change from call to call.
#pragma once

#include "kernels/kernel.h"

namespace tb {

// Throws a Failure.
void check_product(const tb_product *product);
void multiply(const tb_product &product, const Kernel &kernel, int threads);

} // namespace tb
