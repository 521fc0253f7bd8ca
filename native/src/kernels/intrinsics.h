// The x86 intrinsics; or, to test kernels on a CPU that lacks their instructions, an imitation of them.
#pragma once

#if defined(TB_EMULATED)
#include "../../tests/emulated.h"
#else
#include <immintrin.h>
#endif
