// What every function of the C interface runs in: a Failure or another exception becomes a status and a message.
#pragma once

#include "failure.h"

#include <cstdio>
#include <exception>
#include <new>
#include <stdexcept>

namespace tb {

inline int report(tb_error *error, int status, const char *message) {
  if (error) std::snprintf(error->message, sizeof error->message, "%s", message);
  return status;
}

template <class Function> int guarded(tb_error *error, Function f) {
  try {
    f();
    return TB_OK;
  } catch (const Failure &failure) {
    return report(error, failure.status, failure.message);
  } catch (const std::bad_alloc &) {
    return report(error, TB_ERROR_MEMORY, "out of memory");
  } catch (const std::length_error &) { // more elements than a vector or string can have
    return report(error, TB_ERROR_MEMORY, "out of memory");
  } catch (const std::exception &exception) {
    return report(error, TB_ERROR_MEMORY, exception.what());
  }
}

} // namespace tb
