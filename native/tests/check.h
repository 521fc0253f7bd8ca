// The smallest test framework: CHECK prints what failed and where, and the program continues.
#pragma once

#include <cstdio>

inline int failures = 0;

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      failures++;                                                                                                      \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                                   \
    }                                                                                                                  \
  } while (0)

inline int report() {
  if (failures) std::fprintf(stderr, "%d checks failed\n", failures);
  return failures ? 1 : 0;
}
