#include "internal.h"

#include <algorithm>
#include <ctime>

namespace tb {
namespace {

// CPU time of this thread, where the system has such a clock: it is less disturbed by other programs.
double seconds() {
#if defined(CLOCK_THREAD_CPUTIME_ID)
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
#else
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
#endif
}

} // namespace

double measure_peak(const Kernel &kernel) {
  constexpr double kSeconds = 0.5, kAttempt = 0.02; // short attempts: at least one of them is undisturbed
  constexpr int kRounds = 5000;
  const double macs = 16.0 * kernel.rows * kernel.columns * kRounds; // four steps of four inputs
  const int8_t zeros[4] = {};
  double best = 0.0;
  for (const double start = seconds(); seconds() < start + kSeconds;) {
    const double begin = seconds();
    double done = 0.0, spent = 0.0;
    for (; spent < kAttempt; spent = seconds() - begin) {
      kernel.only_products(zeros, kRounds);
      done += macs;
    }
    best = std::max(best, 1e-9 * done / spent);
  }
  return best;
}

} // namespace tb
