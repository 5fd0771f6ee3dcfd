/* cuFFT: a transform takes the time of its passes through the card's memory. */
#define _GNU_SOURCE
#include "cudart.h"
#include <cufftXt.h>
#include <math.h>
#include <pthread.h>

#define EXPORT __attribute__((visibility("default")))
enum { PLANS = 1 << 14, POINTS_A_PASS = 1 << 12 }; /* what a multiprocessor transforms at once */

typedef struct { int used; cudaStream_t stream; double bytes; } plan;
static plan plans[PLANS];
static pthread_mutex_t choosing = PTHREAD_MUTEX_INITIALIZER;

EXPORT cufftResult cufftCreate(cufftHandle *out) {
  cufftResult result = CUFFT_ALLOC_FAILED;
  pthread_mutex_lock(&choosing);
  for (int i = 0; i < PLANS && result; i++)
    if (!plans[i].used) plans[i] = (plan){.used = 1}, *out = i, result = CUFFT_SUCCESS;
  pthread_mutex_unlock(&choosing);
  return result;
}
EXPORT cufftResult cufftDestroy(cufftHandle p) { plans[p].used = 0; return CUFFT_SUCCESS; }
EXPORT cufftResult cufftSetStream(cufftHandle p, cudaStream_t s) { plans[p].stream = s; return CUFFT_SUCCESS; }
EXPORT cufftResult cufftXtMakePlanMany(cufftHandle p, int rank, long long *n, long long *inside, long long step, long long apart,
    cudaDataType in, long long *outside, long long out_step, long long out_apart, cudaDataType out, long long batch, size_t *work,
    cudaDataType how) {
  (void)inside, (void)step, (void)apart, (void)in, (void)outside, (void)out_step, (void)out_apart, (void)out;
  double points = 1, passes = 0;
  for (int i = 0; i < rank; i++) {
    points *= (double)n[i];
    passes += ceil(log2((double)n[i] + 1) / log2(POINTS_A_PASS));
  }
  double complex_bytes = how == CUDA_C_16F || how == CUDA_R_16F ? 4 : how == CUDA_C_64F || how == CUDA_R_64F ? 16 : 8;
  plans[p].bytes = 2 * points * (double)batch * complex_bytes * passes; /* read and written */
  *work = (size_t)(points * (double)batch * complex_bytes);
  return CUFFT_SUCCESS;
}
EXPORT cufftResult cufftXtExec(cufftHandle p, void *in, void *out, int direction) {
  (void)in, (void)out, (void)direction;
  int card = stream_card(plans[p].stream);
  spin(2 * launch_ns);
  atomic_fetch_add(&state->cards[card].launches, 1);
  stream_work(plans[p].stream, COMPUTE, 2500 + (ns)(plans[p].bytes / (0.8 * cards[card]->bandwidth)));
  return CUFFT_SUCCESS;
}
