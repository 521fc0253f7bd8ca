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

/** The beginning of any value, for a message; JSON does not have all of them. @param {unknown} value */
export function shown(value) {
  let text;
  try {
    text = JSON.stringify(value) ?? String(value);
  } catch {
    // An object that contains itself, for example.
    text = typeof value === "bigint" ? `${value}n` : Object.prototype.toString.call(value);
  }
  return text.length > 80 ? `${text.slice(0, 80)}...` : text;
}
