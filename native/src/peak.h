// What a core can multiply at best.
#pragma once

#include "kernels/kernel.h"

namespace tb {

// Billions of multiplications a second of one thread that does nothing but the kernel's inner products on registers.
double measure_peak(const Kernel &kernel);

} // namespace tb
