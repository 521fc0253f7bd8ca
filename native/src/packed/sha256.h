// SHA-256 (FIPS 180-4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tb {

// 64 hexadecimal digits.
std::string sha256(const uint8_t *data, size_t size);

} // namespace tb
