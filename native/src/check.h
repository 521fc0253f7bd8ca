// Is this a model, is this a batch? Everything is looked at before anything is used.
#pragma once

#include "ternarybert.h"

struct tb_model;

namespace tb {

// Throw a Failure that names the first thing that is wrong.
void check_config(const tb_config *config);
void check_batch(const tb_model &model, const tb_batch *batch);

} // namespace tb
