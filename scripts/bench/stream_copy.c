/* The copy of STREAM (J. D. McCalpin, "Memory bandwidth and machine balance in current high performance computers",
   1995): the best of several repetitions, in bytes read and written per second. Argument: bytes of an array. */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char** arguments) {
  const size_t values = (count > 1 ? strtoull(arguments[1], NULL, 10) : 256u << 20) / sizeof(double);
  double* from = malloc(values * sizeof(double));
  double* to = malloc(values * sizeof(double));
  double best = 1e30;
  if (!from || !to) return 1;
#pragma omp parallel for
  for (size_t i = 0; i < values; ++i) from[i] = 1.0, to[i] = 2.0;
  for (int turn = 0; turn < 20; ++turn) {
    const double began = omp_get_wtime();
#pragma omp parallel for
    for (size_t i = 0; i < values; ++i) to[i] = from[i];
    const double seconds = omp_get_wtime() - began;
    if (seconds < best) best = seconds;
  }
  printf("%.0f\n", 2.0 * (double)(values * sizeof(double)) / best + 0 * to[values / 2]);
  return 0;
}
