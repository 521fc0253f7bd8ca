#include "ternarybert.h"

extern "C" const char *tb_version(void) { return TB_VERSION; }
