// Texts that are longer than a model are cut into windows that overlap (src/ternarybert/data/squad/windows.py).
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tb {

struct Window {
  size_t first, count;     // tokens of the text
  size_t own_from, own_to; // those whose outputs count: the window shows most of their surroundings
};

// Windows of `room` tokens; each begins at most `stride` (1 or more) after the one before it.
inline std::vector<Window> cut_windows(size_t total, size_t room, size_t stride) {
  const size_t step = std::min(stride, room);
  const size_t limit = (total > room ? total - room : 0) + step;
  std::vector<Window> windows;
  for (size_t first = 0; first < limit; first += step)
    windows.push_back({first, std::min(room, total - first), 0, total});
  for (size_t i = 0; i + 1 < windows.size(); i++)
    windows[i].own_to = windows[i + 1].own_from = (windows[i].first + windows[i + 1].first + room - 1) / 2 + 1;
  return windows;
}

} // namespace tb
