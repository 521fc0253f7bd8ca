# clang 19 for WebAssembly, from Debian: clang-19 lld-19 wasi-libc libc++-19-dev-wasm32 libc++abi-19-dev-wasm32
# libclang-rt-19-dev-wasm32. Another clang with the same libraries: -DWASM_CXX=...
set(CMAKE_SYSTEM_NAME WASI)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(WASM_CXX clang++-19 CACHE STRING "clang with WebAssembly's libraries")
set(CMAKE_CXX_COMPILER ${WASM_CXX})
set(CMAKE_CXX_COMPILER_TARGET wasm32-wasi)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
