// SPDX-License-Identifier: Apache-2.0
// call_kernel STUB LIBRARY: loads both and calls `kernel(const float*, float*)` of the second over 256 values.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char** argv) {
  static float in[4096] __attribute__((aligned(64)));
  static float out[4096] __attribute__((aligned(64)));
  void* library = NULL;
  for (int i = 1; i < argc; ++i) {
    library = dlopen(argv[i], RTLD_LAZY | RTLD_GLOBAL);
    if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 2;
  }
  void (*kernel)(const float*, float*) = (void (*)(const float*, float*))dlsym(library, "kernel");
  if (kernel == NULL) return fprintf(stderr, "no kernel\n"), 2;
  for (int i = 0; i < 256; ++i) in[i] = (float)i;
  kernel(in, out);
  printf("%g %g\n", out[0], out[255]);
  return 0;
}
