/* ternarybert: the plain C interface of the native library.
 *
 * A model is created once from tensors in memory (docs/reference/format.md) and then run on ragged batches of token
 * ids. Every function may be called from several threads, also with the same model. The only global state is a thread
 * pool that tb_multiply keeps between calls. No exception leaves the library. Returned strings are static: never free
 * them.
 *
 * Builds by Visual C++ contain only the portable kernel, which gives the same results many times more slowly; the SIMD
 * kernels need gcc or clang.
 */
#ifndef TERNARYBERT_H
#define TERNARYBERT_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(TB_BUILD)
#define TB_API __declspec(dllexport)
#elif defined(_WIN32)
#define TB_API __declspec(dllimport)
#else
#define TB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, the same as the Python package's. */
TB_API const char *tb_version(void);

/* Instruction sets that kernels may use; the bits of tb_cpu_features(). */
enum tb_cpu_feature {
  TB_CPU_AVX2 = 1u << 0,
  TB_CPU_AVX_VNNI = 1u << 1,
  TB_CPU_AVX512BW = 1u << 2,   /* with AVX512F and AVX512VL */
  TB_CPU_AVX512VNNI = 1u << 3, /* with AVX512BW */
  TB_CPU_NEON = 1u << 4,
  TB_CPU_DOTPROD = 1u << 5,
};

/* The instruction sets that this CPU has and the operating system supports. */
TB_API uint32_t tb_cpu_features(void);

/* ---- Status ---------------------------------------------------------------------------------------------------- */

enum tb_status {
  TB_OK = 0,
  TB_ERROR_ARGUMENT = 1, /* a null pointer, or a size or enumerator out of range */
  TB_ERROR_MODEL = 2,    /* tensors or settings that are not a valid model */
  TB_ERROR_INPUT = 3,    /* a token id, type or length out of the model's range */
  TB_ERROR_MEMORY = 4,
  TB_ERROR_KERNEL = 5,  /* no such kernel, or it does not run on this CPU */
  TB_ERROR_NUMERIC = 6, /* activations became infinite or NaN */
};

/* A human-readable message; written by every function that returns a tb_status other than TB_OK. */
typedef struct tb_error {
  char message[256];
} tb_error;

/* ---- Model ----------------------------------------------------------------------------------------------------- */

/* A weight of rows x columns as stored in a packed folder: value[r][c] = scale[0 or r] * code[r][c]. */
typedef struct tb_matrix {
  int32_t rows; /* 0: the model has no such matrix */
  int32_t columns;
  int32_t bits;       /* 2, 3, 4, 8: codes; 32: floats */
  int32_t log;        /* 3 and 4 bits: 1 for logarithmic levels */
  int32_t dense;      /* 2 bits: 1 for five codes per byte */
  int32_t scales;     /* 1 or rows */
  const void *codes;  /* rows of packed codes, or floats */
  const float *scale; /* ignored for 32 bits */
} tb_matrix;

typedef struct tb_linear {
  tb_matrix weight;
  const float *bias; /* rows floats, or NULL */
} tb_linear;

typedef struct tb_norm {
  const float *weight; /* hidden floats, as the bias */
  const float *bias;
} tb_norm;

typedef struct tb_layer {
  tb_linear query, key, value, attention_output, up, down;
  tb_norm attention_norm, output_norm;
} tb_layer;

enum tb_function { TB_IDENTITY = 0, TB_GELU = 1, TB_GELU_TANH = 2, TB_RELU = 3, TB_TANH = 4 };
enum tb_range { TB_RANGE_TOKEN = 0, TB_RANGE_SEQUENCE = 1 };

/* A complete model. The library copies what it needs: nothing has to outlive tb_model_create. */
typedef struct tb_config {
  uint32_t size; /* sizeof(tb_config), to detect a program built with a different header */

  int32_t hidden, heads, intermediate, layers;
  int32_t positions;      /* rows of the position embedding */
  int32_t first_position; /* position of the first token: 0, or padding index + 1 for RoBERTa */
  int32_t types;          /* rows of the type embedding; 0 if there is none */
  int32_t function;       /* activation function between up and down: TB_GELU, TB_GELU_TANH or TB_RELU */
  double norm_eps;

  int32_t activation_bits; /* 2 to 8, or 32 for float activations */
  int32_t range;           /* TB_RANGE_TOKEN or TB_RANGE_SEQUENCE */
  int32_t symmetric;       /* 0: min-max */
  float clip;              /* 0: none */

  tb_matrix word;        /* vocabulary x hidden */
  const float *position; /* positions x hidden */
  const float *type;     /* types x hidden */
  tb_norm embedding_norm;
  const tb_layer *layer; /* `layers` of them */

  /* dense = function(W first_token + b): BERT's pooler, or the first half of a RoBERTa, ELECTRA or DistilBERT head. */
  tb_linear dense;
  int32_t dense_function;
  int32_t dense_quantized; /* 1 if its input is quantized, as the pooler's is */

  /* The task head. Its input is the dense layer's output if there is one, else the first token; or every token. */
  tb_linear head;
} tb_config;

typedef struct tb_model tb_model;

/* Create a model. `kernel` is one of tb_kernels(), or NULL for the best one on this CPU. `threads` is the most that one
 * call uses, including the calling thread; a call that finds the others busy with another call runs alone. After fork()
 * a child process may use the model, on the calling thread alone. */
TB_API int tb_model_create(const tb_config *config, const char *kernel, int32_t threads, tb_model **model,
                           tb_error *error);
TB_API void tb_model_free(tb_model *model);

TB_API const char *tb_model_kernel(const tb_model *model); /* the kernel's name */
TB_API uint64_t tb_model_memory(const tb_model *model);    /* bytes of the model, without working memory */

/* The names of the kernels that this CPU can run, best first; the list ends with NULL. */
TB_API const char *const *tb_kernels(void);

/* Peak speed of one core in billions of multiplications per second: a kernel's (NULL: the best one's) inner products on
 * registers, measured for half a second; 0 if there is no such kernel on this CPU. */
TB_API double tb_peak(const char *kernel);

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* Sequences of token ids, back to back, without padding. */
typedef struct tb_batch {
  int32_t sequences;
  const int32_t *lengths; /* of each sequence; 1 or more */
  const int32_t *ids;     /* all tokens */
  const int32_t *types;   /* all tokens, or NULL for type 0 */
} tb_batch;

enum tb_output {
  TB_OUTPUT_HIDDEN = 0,       /* last hidden states: tokens x hidden */
  TB_OUTPUT_FIRST = 1,        /* of the first token of each sequence: sequences x hidden */
  TB_OUTPUT_MEAN = 2,         /* mean over each sequence: sequences x hidden */
  TB_OUTPUT_DENSE = 3,        /* the dense layer's output: sequences x its rows */
  TB_OUTPUT_LOGITS = 4,       /* the head's output, one row per sequence */
  TB_OUTPUT_TOKEN_LOGITS = 5, /* the head's output, one row per token */
};

/* Run the model. `size` is the number of floats in `result`, and must be exactly that of the output.
 *
 * Working memory is kept between calls, so that batches of equal size allocate nothing. It shrinks after larger ones:
 * every 32 uses (one per group of sequences, of about 128 tokens per thread) a workspace more than twice as large as
 * any of them needed is cut down to what they needed, and workspaces that were not needed are freed. */
TB_API int tb_run(const tb_model *model, const tb_batch *batch, int32_t output, float *result, size_t size,
                  tb_error *error);

/* ---- A single product ------------------------------------------------------------------------------------------ */

/* A linear layer on quantized inputs, y = scale * (x_scale * (codes . weight) + x_offset * sum(weight)) + bias, each
 * operation rounded by itself: for training loops, where weights change on every call. */
typedef struct tb_product {
  int32_t rows, inputs, outputs; /* inputs and outputs at most 65536 */
  int32_t scales;                /* 1 or outputs */
  const float *codes;            /* rows x inputs: integers 0 to 255, as floats */
  const float *x_scale;          /* one per row, as x_offset */
  const float *x_offset;
  const int8_t *weight; /* outputs x inputs; fastest if all are -1, 0 or 1 */
  const float *scale;
  const float *bias; /* outputs floats, or NULL */
  float *y;          /* the result: rows x outputs */
} tb_product;

/* `kernel` and `threads` as in tb_model_create. The threads are kept for the next call with the same number of threads,
 * and end with the program or when the library is unloaded; a forked child starts its own. Concurrent calls each have
 * their own threads. */
TB_API int tb_multiply(const tb_product *product, const char *kernel, int32_t threads, tb_error *error);

#ifdef __cplusplus
}
#endif
#endif
