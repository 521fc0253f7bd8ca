// Errors inside the library are exceptions of this one type; api.cc turns them into a status and a message.
#pragma once

#include "ternarybert.h"

#include <cstdarg>
#include <cstdio>

namespace tb {

struct Failure {
  int status;
  char message[sizeof(tb_error::message)];
};

#if defined(__GNUC__)
#define TB_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define TB_PRINTF
#endif

[[noreturn]] TB_PRINTF inline void fail(int status, const char *format, ...);

inline void fail(int status, const char *format, ...) {
  Failure failure{status, {}};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(failure.message, sizeof failure.message, format, arguments);
  va_end(arguments);
  throw failure;
}

} // namespace tb
