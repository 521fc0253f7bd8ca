// Errors: one class, and a name for each cause. Names are those of the Python package.

// By the status of the C library (native/include/ternarybert.h).
const NAMES = [
  "",
  "ArgumentError",
  "UnsupportedModelError",
  "InputError",
  "OutOfMemoryError",
  "KernelError",
  "NonFiniteError",
  "NotPackedError",
  "FormatVersionError",
  "UnsafeFileError",
  "PackedConfigError",
  "ContainerError",
  "PackedTensorError",
  "ReadError",
];

export class TernaryBertError extends Error {
  /**
   * @param {import("./index.js").ErrorName} name
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(name, message, cause) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = name;
  }
}

/**
 * @param {number} status
 * @param {string} message
 */
export function errorOf(status, message) {
  return new TernaryBertError(/** @type {import("./index.js").ErrorName} */ (NAMES[status] ?? "EngineError"), message);
}
