// A batch: how it is cut into groups, and who computes which.
#pragma once

#include "model.h"

namespace tb {

// Throws a Failure.
void run(tb_model &model, const tb_batch &batch, int output, float *result, size_t size);

} // namespace tb
