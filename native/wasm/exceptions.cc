// C++ exceptions on WebAssembly's own: Debian's C++ library for wasm32 is built without them.
//
// The compiler turns a landing pad with typed handlers into: store the function's table of handlers and the landing
// pad's number in __wasm_lpad_context, call _Unwind_CallPersonality with the caught exception, then branch on the
// selector that it left there. The table is that of the Itanium C++ ABI, with the landing pads in their order.
#include "../src/failure.h"

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <new>
#include <typeinfo>

namespace {

// What lies before a thrown object. One exception is in flight at a time: there is one thread, and no destructor or
// handler of the engine throws.
struct alignas(16) Header {
  const std::type_info *type;
  void *(*destroy)(void *); // destructors return their object on WebAssembly
};

Header *header_of(void *object) { return static_cast<Header *>(object) - 1; }

// For when there is no memory left to throw with.
alignas(16) unsigned char reserve[sizeof(Header) + sizeof(tb::Failure) + 64];

uintptr_t read_unsigned(const uint8_t *&p) {
  uintptr_t value = 0;
  int shift = 0;
  uint8_t byte;
  do {
    byte = *p++;
    value |= static_cast<uintptr_t>(byte & 0x7f) << shift;
    shift += 7;
  } while (byte & 0x80);
  return value;
}

intptr_t read_signed(const uint8_t *&p) {
  const uint8_t *const begin = p;
  const uintptr_t value = read_unsigned(p);
  const int bits = 7 * static_cast<int>(p - begin);
  const bool negative = p[-1] & 0x40;
  return static_cast<intptr_t>(negative && bits < 32 ? value | ~uintptr_t{0} << bits : value);
}

// All that is thrown, but a Failure, derives from std::exception: no other base class is ever caught.
bool catches(const std::type_info *handler, const std::type_info &thrown) {
  return !handler || *handler == thrown || (*handler == typeid(std::exception) && thrown != typeid(tb::Failure));
}

// The selector of the first handler that takes the exception, 0 if none does.
int find_handler(const uint8_t *table, uintptr_t landing_pad, const std::type_info &thrown) {
  constexpr uint8_t kOmitted = 0xff;
  const uint8_t *p = table;
  if (*p++ != kOmitted) std::abort(); // a landing pad base: not on WebAssembly
  if (*p++ == kOmitted) return 0;     // no types: nothing but destructors
  const uintptr_t types = read_unsigned(p);
  const std::type_info *const *const types_end = reinterpret_cast<const std::type_info *const *>(p + types);
  p++; // the encoding of landing pads
  const uintptr_t length = read_unsigned(p);
  const uint8_t *const actions = p + length;
  uintptr_t action = 0;
  for (uintptr_t i = 0; i <= landing_pad; i++) {
    read_unsigned(p);
    action = read_unsigned(p);
  }
  if (action == 0) return 0;
  for (p = actions + action - 1;;) {
    const intptr_t type = read_signed(p);
    if (type > 0 && catches(types_end[-type], thrown)) return static_cast<int>(type);
    const uint8_t *const place = p;
    const intptr_t next = read_signed(p);
    if (next == 0) return 0;
    p = place + next;
  }
}

} // namespace

extern "C" {

struct LandingPadContext {
  uintptr_t landing_pad;
  const uint8_t *table;
  uintptr_t selector;
};
LandingPadContext __wasm_lpad_context;

int _Unwind_CallPersonality(void *object) {
  LandingPadContext &context = __wasm_lpad_context;
  context.selector = static_cast<uintptr_t>(find_handler(context.table, context.landing_pad, *header_of(object)->type));
  return 0;
}

void *__cxa_allocate_exception(size_t size) noexcept {
  void *memory = std::malloc(sizeof(Header) + size);
  if (!memory) memory = reserve;
  return static_cast<Header *>(memory) + 1;
}

void __cxa_free_exception(void *object) noexcept {
  void *const memory = header_of(object);
  if (memory != reserve) std::free(memory);
}

[[noreturn]] void __cxa_throw(void *object, std::type_info *type, void *(*destroy)(void *)) {
  *header_of(object) = {type, destroy};
  __builtin_wasm_throw(0, object);
}

static void *caught;

void *__cxa_begin_catch(void *object) noexcept {
  caught = object;
  return object;
}

void __cxa_end_catch() {
  Header *const header = header_of(caught);
  if (header->destroy) header->destroy(caught);
  __cxa_free_exception(caught);
}

[[noreturn]] void __cxa_rethrow() { __builtin_wasm_throw(0, caught); }

void *__cxa_get_exception_ptr(void *object) noexcept { return object; }

} // extern "C"

// The library's own versions abort when there is no memory.
void *operator new(size_t size) {
  void *const memory = std::malloc(size ? size : 1);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void *operator new(size_t size, std::align_val_t alignment) {
  void *const memory = std::aligned_alloc(static_cast<size_t>(alignment), size);
  if (!memory) throw std::bad_alloc();
  return memory;
}

void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }
