// The C interface: arguments are checked here, and no exception gets out.
#include "failure.h"
#include "float_mode.h"
#include "guarded.h"
#include "internal.h"
#include "model.h"

#include <string>

namespace {

bool runs_here(const tb::Kernel &kernel) { return (kernel.features & ~tb_cpu_features()) == 0; }

// Made when the library is loaded, and with it the list of CPU features: a thread that made them on first use could be
// cut off by fork(), and the child would wait for it.
const struct UsableKernels {
  const char *names[8] = {};
  UsableKernels() {
    int n = 0;
    for (const tb::Kernel *const *k = tb::built_kernels(); *k; k++)
      if (runs_here(**k)) names[n++] = (*k)->name;
  }
} usable_kernels;

const tb::Kernel &choose(const char *name) {
  for (const tb::Kernel *const *k = tb::built_kernels(); *k; k++) {
    if (name && std::strcmp((*k)->name, name) != 0) continue;
    if (runs_here(**k)) return **k;
    if (name) tb::fail(TB_ERROR_KERNEL, "this CPU cannot run the kernel %s", name);
  }
  std::string all;
  for (const tb::Kernel *const *k = tb::built_kernels(); *k; k++)
    all += std::string(all.empty() ? "" : ", ") + (*k)->name;
  tb::fail(TB_ERROR_KERNEL, "there is no kernel %.40s; this library has %s", name, all.c_str());
}

void check_threads(int threads) {
  if (threads < 1 || threads > 1024) tb::fail(TB_ERROR_ARGUMENT, "%d threads; 1 to 1024 make sense", threads);
}

void check_output(const tb_model &model, int output) {
  if (output < TB_OUTPUT_HIDDEN || output > TB_OUTPUT_TOKEN_LOGITS)
    tb::fail(TB_ERROR_ARGUMENT, "there is no output %d", output);
  if (output == TB_OUTPUT_DENSE && model.dense.outputs() == 0)
    tb::fail(TB_ERROR_ARGUMENT, "the model has no dense layer");
  if ((output == TB_OUTPUT_LOGITS || output == TB_OUTPUT_TOKEN_LOGITS) && model.head.outputs() == 0)
    tb::fail(TB_ERROR_ARGUMENT, "the model has no head");
  if (output == TB_OUTPUT_TOKEN_LOGITS && model.head.inputs() != model.hidden)
    tb::fail(TB_ERROR_ARGUMENT, "the head takes the dense layer's output, not a token's");
}

int run_checked(const tb_model *model, const tb_batch *batch, int output, float *result, size_t size, tb_error *error,
                bool alone) {
  return tb::guarded(error, [&] {
    if (!model) tb::fail(TB_ERROR_ARGUMENT, "model is null");
    if (!result) tb::fail(TB_ERROR_ARGUMENT, "result is null");
    check_output(*model, output);
    tb::check_batch(*model, batch);
    tb::run(*model, *batch, output, result, size, alone);
  });
}

} // namespace

extern "C" {

const char *tb_version(void) { return TB_VERSION; }

int tb_model_create(const tb_config *config, const char *kernel, int32_t threads, tb_model **model, tb_error *error) {
  return tb::guarded(error, [&] {
    if (!model) tb::fail(TB_ERROR_ARGUMENT, "model is null");
    *model = nullptr;
    check_threads(threads);
    const tb::Kernel &chosen = choose(kernel);
    tb::check_config(config);
    const tb::FloatMode mode;
    *model = new tb_model(*config, chosen, threads);
  });
}

void tb_model_free(tb_model *model) { delete model; }

const char *tb_model_kernel(const tb_model *model) { return model ? model->kernel.name : ""; }

uint64_t tb_model_memory(const tb_model *model) { return model ? model->bytes : 0; }

const char *const *tb_kernels(void) { return usable_kernels.names; }

double tb_peak(const char *kernel) {
  double peak = 0.0;
  tb::guarded(nullptr, [&] { peak = tb::measure_peak(choose(kernel)); });
  return peak;
}

int tb_run(const tb_model *model, const tb_batch *batch, int32_t output, float *result, size_t size, tb_error *error) {
  return run_checked(model, batch, output, result, size, error, false);
}

int tb_run_alone(const tb_model *model, const tb_batch *batch, int32_t output, float *result, size_t size,
                 tb_error *error) {
  return run_checked(model, batch, output, result, size, error, true);
}

int tb_multiply(const tb_product *product, const char *kernel, int32_t threads, tb_error *error) {
  return tb::guarded(error, [&] {
    check_threads(threads);
    tb::check_product(product);
    tb::multiply(*product, choose(kernel), threads);
  });
}

} // extern "C"
