// The engine: the C library (native/) as a WebAssembly module, its memory, and calls that turn a status into an error.
//
// There are two modules with one kernel each. One that uses relaxed SIMD is not even valid where that is unknown, so
// both cannot be in one file. They give the same bits.
import { errorOf, TernaryBertError } from "./errors.js";
import { HAS_FILES, placeOf, readBytes } from "./source.js";

/** @typedef {"relaxed-simd" | "simd128"} Kernel */

// A function that only adds products of bytes by i16x8.relaxed_dot_i8x16_i7x16_s.
// prettier-ignore
const RELAXED_SIMD = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, // the start of every module
  1, 5, 1, 0x60, 0, 1, 0x7b, // a type: no arguments, a vector
  3, 2, 1, 0, // a function of that type
  10, 15, 1, 13, 0, 0x41, 0, 0xfd, 0x0f, 0x41, 0, 0xfd, 0x0f, 0xfd, 0x92, 0x02, 0x0b,
]);

/** @type {Map<Kernel, Promise<WebAssembly.Module>>} */
const modules = new Map();

/** The kernels that run here, best first. @returns {Kernel[]} */
export function kernels() {
  return WebAssembly.validate(RELAXED_SIMD) ? ["relaxed-simd", "simd128"] : ["simd128"];
}

/** @param {Kernel} kernel */
function moduleFile(kernel) {
  // Written out in full: this is how bundlers notice the files.
  return kernel === "simd128"
    ? new URL("./wasm/ternarybert-simd128.wasm", import.meta.url)
    : new URL("./wasm/ternarybert-relaxed-simd.wasm", import.meta.url);
}

/** @param {import("./index.js").LoadOptions} options */
async function moduleOf(options) {
  if (options.wasm instanceof WebAssembly.Module) return options.wasm;
  if (options.wasm) return compile(options.wasm);
  const [best] = kernels();
  const kernel = options.kernel ?? best;
  if (!kernels().includes(kernel))
    throw new TernaryBertError("KernelError", `the kernel ${kernel} does not run here; these do: ${kernels().join(", ")}`);
  const known = modules.get(kernel);
  if (known) return known;
  const compiled = compile(moduleFile(kernel));
  modules.set(kernel, compiled);
  compiled.catch(() => modules.delete(kernel)); // a download that failed may succeed the next time
  return compiled;
}

/** @param {string | URL | Uint8Array} source */
async function compile(source) {
  if (!(source instanceof Uint8Array) && !HAS_FILES)
    try {
      // Browsers keep what they compile this way: the next visit starts with optimized code.
      return await WebAssembly.compileStreaming(fetch(placeOf(source)));
    } catch {
      // The server may not call it application/wasm; anything else that is wrong shows below.
    }
  const bytes = source instanceof Uint8Array ? source : await readBytes(source, {});
  try {
    return await WebAssembly.compile(/** @type {BufferSource} */ (bytes));
  } catch (error) {
    throw new TernaryBertError("EngineError", `the engine does not compile: ${/** @type {Error} */ (error).message}`, error);
  }
}

// What the C library would do with files and the console. It has none: nothing is ever opened or printed.
const BAD_DESCRIPTOR = () => 8;
const IMPORTS = {
  wasi_snapshot_preview1: {
    fd_close: BAD_DESCRIPTOR,
    fd_seek: BAD_DESCRIPTOR,
    fd_write: BAD_DESCRIPTOR,
  },
};

const ERROR_BYTES = 256;
const UTF8 = new TextEncoder();
const TEXT = new TextDecoder();

export class Engine {
  /** @param {WebAssembly.Instance} instance */
  constructor(instance) {
    /** @type {any} */
    this.functions = instance.exports;
    /** @type {WebAssembly.Memory} */
    this.memory = this.functions.memory;
    this.functions._initialize();
    this.errorPlace = this.allocate(ERROR_BYTES);
    /** @type {Error | null} */
    this.broken = null;
  }

  /** @param {import("./index.js").LoadOptions} options */
  static async create(options) {
    const module = await moduleOf(options);
    const names = WebAssembly.Module.exports(module).map(({ name }) => name);
    if (!["memory", "_initialize", "malloc", "tb_open_memory"].every((name) => names.includes(name)))
      throw new TernaryBertError("EngineError", "this WebAssembly module is not the engine of the package");
    try {
      return new Engine(await WebAssembly.instantiate(module, IMPORTS));
    } catch (error) {
      if (!(error instanceof RangeError)) throw error; // no memory for the instance
      throw new TernaryBertError("OutOfMemoryError", "out of memory", error);
    }
  }

  // Views are made anew for every use: memory that grows invalidates them.
  get view() {
    return new DataView(this.memory.buffer);
  }
  get bytes() {
    return new Uint8Array(this.memory.buffer);
  }

  /** @param {number} size */
  allocate(size) {
    // WebAssembly would take the lower 32 bits of a size. What it returns is signed: negative from 2 GiB on.
    const place = size > 0xffffffff ? 0 : this.functions.malloc(size || 1) >>> 0;
    if (!place) throw errorOf(4, "out of memory");
    return place;
  }

  /**
   * Memory for the time of a call.
   * @template T
   * @param {(scratch: (size: number) => number) => T} f
   * @returns {T}
   */
  withScratch(f) {
    /** @type {number[]} */
    const places = [];
    try {
      return f((size) => {
        places.push(this.allocate(size));
        return places[places.length - 1];
      });
    } finally {
      if (!this.broken) for (const place of places) this.functions.free(place);
    }
  }

  /**
   * A function that returns a status and takes the place of an error as its last argument.
   * @param {string} name
   * @param {...number} args
   */
  call(name, ...args) {
    if (this.broken) throw this.broken;
    let status;
    try {
      status = this.functions[name](...args, this.errorPlace);
    } catch (error) {
      // A trap, such as a stack that overflowed, leaves the memory in the middle of something.
      this.broken = new TernaryBertError("EngineError", `the engine stopped: ${/** @type {Error} */ (error).message}`, error);
      throw this.broken;
    }
    if (status) throw errorOf(status, this.text(this.errorPlace));
  }

  /** A string that ends with a zero. @param {number} place as a function returned it */
  text(place) {
    const bytes = this.bytes;
    const start = place >>> 0;
    return TEXT.decode(bytes.subarray(start, bytes.indexOf(0, start)));
  }

  /**
   * An array of tb_text.
   * @param {(size: number) => number} scratch
   * @param {readonly (readonly [string, string?])[]} texts
   */
  writeTexts(scratch, texts) {
    const place = scratch(16 * texts.length);
    texts.forEach((pair, i) => {
      for (const [j, part] of [pair[0], pair[1]].entries()) {
        const data = part === undefined ? null : UTF8.encode(part);
        const at = data ? scratch(data.length) : 0;
        if (data) this.bytes.set(data, at);
        this.view.setUint32(place + 16 * i + 8 * j, at, true);
        this.view.setUint32(place + 16 * i + 8 * j + 4, data ? data.length : 0, true);
      }
    });
    return place;
  }

  /** @param {number} place @param {number} count */
  floats(place, count) {
    return new Float32Array(this.memory.buffer, place, count).slice();
  }
  /** @param {number} place @param {number} count */
  doubles(place, count) {
    return new Float64Array(this.memory.buffer, place, count).slice();
  }
  /** @param {number} place @param {number} count */
  integers(place, count) {
    return new Int32Array(this.memory.buffer, place, count).slice();
  }
}
