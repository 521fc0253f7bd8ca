/* ternarybert: the native core's plain C interface.
 *
 * A model is made once from tensors in memory (docs/reference/format.md) and then run on ragged batches of token ids.
 * Every function may be called from several threads, also on the same model. Nothing is global; no exception leaves the
 * library. Strings that are returned are static: never free them.
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

/* The library's version, equal to the Python package's. */
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

/* What this CPU has and the operating system lets programs use. */
TB_API uint32_t tb_cpu_features(void);

/* ---- Status ---------------------------------------------------------------------------------------------------- */

enum tb_status {
  TB_OK = 0,
  TB_ERROR_ARGUMENT = 1, /* a null pointer, a size or an enumeration that makes no sense */
  TB_ERROR_MODEL = 2,    /* tensors or settings that do not make a model */
  TB_ERROR_INPUT = 3,    /* a token id, type or length that the model does not have */
  TB_ERROR_MEMORY = 4,
  TB_ERROR_KERNEL = 5,  /* the kernel asked for does not exist or does not run on this CPU */
  TB_ERROR_NUMERIC = 6, /* activations became infinite or NaN */
};

/* What went wrong, for people; written by every function that returns a tb_status other than TB_OK. */
typedef struct tb_error {
  char message[256];
} tb_error;

/* ---- Model ----------------------------------------------------------------------------------------------------- */

/* A weight of rows x columns as it lies in a packed folder: value[r][c] = scale[0 or r] * code[r][c]. */
typedef struct tb_matrix {
  int32_t rows; /* 0: the model has no such matrix */
  int32_t columns;
  int32_t bits;       /* 2, 3, 4, 8: codes; 32: floats */
  int32_t log;        /* 3 and 4 bits: 1 for logarithmic levels */
  int32_t dense;      /* 2 bits: 1 for five codes a byte */
  int32_t scales;     /* 1 or rows */
  const void *codes;  /* rows of packed codes, or floats */
  const float *scale; /* ignored for 32 bits */
} tb_matrix;

typedef struct tb_linear {
  tb_matrix weight;
  const float *bias; /* rows floats, or NULL */
} tb_linear;

typedef struct tb_norm {
  const float *weight; /* as many as the model is wide */
  const float *bias;
} tb_norm;

typedef struct tb_layer {
  tb_linear query, key, value, attention_output, up, down;
  tb_norm attention_norm, output_norm;
} tb_layer;

enum tb_function { TB_IDENTITY = 0, TB_GELU = 1, TB_GELU_TANH = 2, TB_RELU = 3, TB_TANH = 4 };
enum tb_range { TB_RANGE_TOKEN = 0, TB_RANGE_SEQUENCE = 1 };

/* Everything that makes a model. The library copies what it needs: nothing has to outlive tb_model_create. */
typedef struct tb_config {
  uint32_t size; /* sizeof(tb_config), so that a program built with another header is noticed */

  int32_t hidden, heads, intermediate, layers;
  int32_t positions;      /* rows of the position embedding */
  int32_t first_position; /* position of the first token: 0, or padding index + 1 in RoBERTa */
  int32_t types;          /* rows of the type embedding; 0 if there is none */
  int32_t function;       /* between up and down: TB_GELU, TB_GELU_TANH or TB_RELU */
  double norm_eps;

  int32_t activation_bits; /* 2 to 8, or 32 for activations that are not quantized */
  int32_t range;           /* TB_RANGE_TOKEN or TB_RANGE_SEQUENCE */
  int32_t symmetric;       /* 0: min-max */
  float clip;              /* 0: none */

  tb_matrix word;        /* vocabulary x hidden */
  const float *position; /* positions x hidden */
  const float *type;     /* types x hidden */
  tb_norm embedding_norm;
  const tb_layer *layer; /* as many as `layers` */

  /* dense = function(W first_token + b): BERT's pooler, or the first half of a RoBERTa, ELECTRA or DistilBERT head. */
  tb_linear dense;
  int32_t dense_function;
  int32_t dense_quantized; /* whether its input is quantized, as the pooler's is */

  /* The task head: of dense's output if there is one, else of the first token; or of every token. */
  tb_linear head;
} tb_config;

typedef struct tb_model tb_model;

/* Make a model. `kernel` names one of tb_kernels(), or is NULL for the best that this CPU can run. `threads` is how
 * many a single call uses at most, the calling one included. */
TB_API int tb_model_create(const tb_config *config, const char *kernel, int32_t threads, tb_model **model,
                           tb_error *error);
TB_API void tb_model_free(tb_model *model);

TB_API const char *tb_model_kernel(const tb_model *model); /* the kernel's name */
TB_API uint64_t tb_model_memory(const tb_model *model);    /* bytes that the model holds, without working memory */

/* Names of all kernels in this library that this CPU can run, best first; the list ends with NULL. */
TB_API const char *const *tb_kernels(void);

/* Billions of multiplications a second that one core could do if a kernel (NULL: the best) did nothing else, measured
 * on registers for half a second; 0 if there is no such kernel on this CPU. */
TB_API double tb_peak(const char *kernel);

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* Sequences of token ids, back to back, without padding. */
typedef struct tb_batch {
  int32_t sequences;
  const int32_t *lengths; /* of each sequence, 1 or more */
  const int32_t *ids;     /* all tokens */
  const int32_t *types;   /* all tokens, or NULL for type 0 */
} tb_batch;

enum tb_output {
  TB_OUTPUT_HIDDEN = 0,       /* last hidden states: tokens x hidden */
  TB_OUTPUT_FIRST = 1,        /* of the first token of each sequence: sequences x hidden */
  TB_OUTPUT_MEAN = 2,         /* mean over each sequence: sequences x hidden */
  TB_OUTPUT_DENSE = 3,        /* the dense layer's output: sequences x its rows */
  TB_OUTPUT_LOGITS = 4,       /* the head's, one row a sequence */
  TB_OUTPUT_TOKEN_LOGITS = 5, /* the head's, one row a token */
};

/* Run the model; `result` has room for `size` floats, which must be exactly what the output has. */
TB_API int tb_run(const tb_model *model, const tb_batch *batch, int32_t output, float *result, size_t size,
                  tb_error *error);

/* ---- A product by itself --------------------------------------------------------------------------------------- */

/* What a linear layer computes from codes, y = scale * (x_scale * (codes . weight) + x_offset * sum(weight)) + bias,
 * each operation rounded by itself: for programs that train, where weights are others in every call. */
typedef struct tb_product {
  int32_t rows, inputs, outputs; /* inputs and outputs at most 65536 */
  int32_t scales;                /* 1 or outputs */
  const float *codes;            /* rows x inputs: whole numbers, 0 to 255 */
  const float *x_scale;          /* one a row, as the next */
  const float *x_offset;
  const int8_t *weight; /* outputs x inputs; fastest where all are -1, 0 or 1 */
  const float *scale;
  const float *bias; /* outputs floats, or NULL */
  float *y;          /* rows x outputs: where the result goes */
} tb_product;

/* `kernel` and `threads` as in tb_model_create. */
TB_API int tb_multiply(const tb_product *product, const char *kernel, int32_t threads, tb_error *error);

#ifdef __cplusplus
}
#endif
#endif
