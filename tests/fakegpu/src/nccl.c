/* NCCL for ranks on cards of one host: they meet in the cards' shared memory.
 *
 * An exchange begins on each card when its stream comes to it, ends on all of them at once, and
 * keeps a kernel on the card meanwhile, which is why NVML calls a rank that waits for another one
 * busy. What is small (64 KiB a rank) is really exchanged: shapes, objects, counts, flags. Larger
 * tensors stay as they are. Neither send and receive nor parts of a communicator are here.
 */
#define _GNU_SOURCE
#include "cudart.h"
#define __CUDA_FP16_H__ /* the headers of half numbers need a C++ library that is not here */
#define __CUDA_BF16_H__
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { LATENCY_NS = 20000, POLL_US = 500 };
static const size_t SIZES[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

struct ncclComm {
  meeting_room *room;
  int ranks, rank;
  int64_t exchanges; /* so far */
};
typedef enum { TO_ALL, TO_ROOT, PARTS, GATHERED, FROM_ROOT, EACH_TO_EACH } kind;
typedef struct {
  struct ncclComm *comm;
  kind kind;
  int64_t number;
  ns duration;
  size_t count; /* elements that a rank gets from another one */
  ncclDataType_t type;
  ncclRedOp_t op;
  int root, card, came;
  char *brought, *out; /* brought: a copy of what is to be sent; NULL if it is too large */
  size_t bytes;
} exchange;

/* --- communicators ------------------------------------------------------------------------- */

/* A room that nobody meets in any more is not given back, since its ranks may have been killed:
 * the rooms are taken in turn, and there are more of them than communicators at a time. */
static meeting_room *room_of(uint64_t id) {
  meeting_room *room = NULL;
  while (atomic_exchange(&state->choosing, 1)) usleep(10);
  for (int i = 0; i < ROOMS; i++)
    if (atomic_load(&state->rooms[i].id) == id) room = &state->rooms[i];
  if (!room) {
    room = &state->rooms[state->rooms_taken++ % ROOMS];
    atomic_store(&room->present, 0);
    for (int t = 0; t < TURNS; t++)
      for (int r = 0; r < CARDS; r++) atomic_store(&room->turns[t].number[r], 0);
    atomic_store(&room->id, id);
  }
  atomic_store(&state->choosing, 0);
  return room;
}
EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
  memset(out, 0, sizeof *out);
  return getrandom(out, sizeof(uint64_t), 0) == sizeof(uint64_t) ? ncclSuccess : ncclSystemError;
}
EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config) {
  (void)config;
  uint64_t key;
  memcpy(&key, &id, sizeof key);
  if (ranks > CARDS) return ncclInvalidArgument;
  struct ncclComm *comm = calloc(1, sizeof *comm);
  *comm = (struct ncclComm){room_of(key), ranks, rank, 0};
  atomic_fetch_add(&comm->room->present, 1);
  while (atomic_load(&comm->room->present) < ranks) usleep(POLL_US);
  *out = comm;
  return ncclSuccess;
}
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, ranks, id, rank, NULL);
}
EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *out, int ranks, int rank, int ids, ncclUniqueId *id, ncclConfig_t *config) {
  (void)ids;
  return ncclCommInitRankConfig(out, ranks, *id, rank, config);
}
EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *out) { *out = comm->ranks; return ncclSuccess; }
EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *out) { *out = comm->rank; return ncclSuccess; }
EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *out) { (void)comm; *out = ncclSuccess; return ncclSuccess; }
EXPORT ncclResult_t ncclGetVersion(int *out) { *out = NCCL_VERSION_CODE; return ncclSuccess; }
EXPORT const char *ncclGetErrorString(ncclResult_t code) { return code ? "not simulated on these cards" : "no error"; }
EXPORT const char *ncclGetLastError(ncclComm_t comm) { (void)comm; return ""; }

/* --- exchanges ------------------------------------------------------------------------------ */

#define REDUCED(T) \
  for (size_t i = 0; i < count; i++) { \
    T sum = 0; \
    for (int r = 0; r < ranks; r++) { \
      T each = ((const T *)(letters[r] + from))[i]; \
      if (!r) sum = each; \
      else if (op == ncclMax) sum = each > sum ? each : sum; \
      else if (op == ncclMin) sum = each < sum ? each : sum; \
      else if (op == ncclProd) sum *= each; \
      else sum += each; \
    } \
    ((T *)out)[i] = op == ncclAvg ? sum / (T)ranks : sum; \
  } \
  break

static void reduce(char *out, char (*letters)[LETTER], size_t from, size_t count, int ranks, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclInt8: REDUCED(int8_t);
    case ncclUint8: REDUCED(uint8_t);
    case ncclInt32: REDUCED(int32_t);
    case ncclUint32: REDUCED(uint32_t);
    case ncclInt64: REDUCED(int64_t);
    case ncclUint64: REDUCED(uint64_t);
    case ncclFloat32: REDUCED(float);
    case ncclFloat64: REDUCED(double);
    default: memcpy(out, letters[0] + from, count * SIZES[type]); /* narrow numbers are not computed */
  }
}
static void hand_out(const exchange *e, char (*letters)[LETTER]) {
  const struct ncclComm *comm = e->comm;
  size_t part = e->count * SIZES[e->type];
  switch (e->kind) {
    case TO_ROOT: if (comm->rank != e->root) break; /* fall through */
    case TO_ALL: reduce(e->out, letters, 0, e->count, comm->ranks, e->type, e->op); break;
    case PARTS: reduce(e->out, letters, part * (size_t)comm->rank, e->count, comm->ranks, e->type, e->op); break;
    case GATHERED: for (int r = 0; r < comm->ranks; r++) memcpy(e->out + part * (size_t)r, letters[r], part); break;
    case FROM_ROOT: memcpy(e->out, letters[e->root], part); break;
    case EACH_TO_EACH:
      for (int r = 0; r < comm->ranks; r++) memcpy(e->out + part * (size_t)r, letters[r] + part * (size_t)comm->rank, part);
  }
}
/* The stream has come to it at `ready`. Returns its end once all are there, else 0. */
static ns come(void *given, ns ready) {
  exchange *e = given;
  int rank = e->comm->rank, ranks = e->comm->ranks;
  __typeof__(e->comm->room->turns[0]) *turn = &e->comm->room->turns[e->number % TURNS];
  if (!e->came) {
    turn->ready[rank] = ready;
    if (e->brought) memcpy(turn->letter[rank], e->brought, e->bytes);
    atomic_store(&turn->number[rank], e->number);
    e->came = 1;
  }
  ns last = 0;
  for (int r = 0; r < ranks; r++) {
    if (atomic_load(&turn->number[r]) != e->number) return 0;
    if (turn->ready[r] > last) last = turn->ready[r];
  }
  ns end = last + e->duration;
  note_work(e->card, EXCHANGE, turn->ready[rank], end);
  if (e->brought) hand_out(e, turn->letter);
  free(e->brought);
  free(e);
  return end;
}
static ncclResult_t queue(kind kind, const void *in, void *out, size_t count, ncclDataType_t type, ncclRedOp_t op, int root,
    struct ncclComm *comm, cudaStream_t stream) {
  int card = stream_card(stream);
  size_t ranks = (size_t)comm->ranks, part = count * SIZES[type];
  size_t bytes = kind == PARTS || kind == EACH_TO_EACH ? part * ranks : part; /* that a rank brings */
  double whole = (double)(kind == GATHERED ? part * ranks : bytes) * (double)(ranks - 1) / (double)ranks;
  if (kind == TO_ALL) whole *= 2; /* a ring: summed on the way round, and told on the next */
  ns duration = slowed(LATENCY_NS + (ns)(whole / cards[card]->link));
  exchange *e = malloc(sizeof *e);
  *e = (exchange){comm, kind, ++comm->exchanges, duration, count, type, op, root, card, 0, NULL, out, bytes};
  if (bytes <= LETTER && in) {
    e->brought = malloc(bytes + 1);
    memcpy(e->brought, in, bytes);
  }
  spin(2 * launch_ns);
  atomic_fetch_add(&state->cards[card].launches, 1);
  stream_meeting(stream, duration, come, e);
  return ncclSuccess;
}
EXPORT ncclResult_t ncclAllReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return queue(TO_ALL, in, out, n, t, op, 0, c, s);
}
EXPORT ncclResult_t ncclReduce(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t s) {
  return queue(TO_ROOT, in, out, n, t, op, root, c, s);
}
EXPORT ncclResult_t ncclReduceScatter(const void *in, void *out, size_t n, ncclDataType_t t, ncclRedOp_t op, ncclComm_t c, cudaStream_t s) {
  return queue(PARTS, in, out, n, t, op, 0, c, s);
}
EXPORT ncclResult_t ncclAllGather(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return queue(GATHERED, in, out, n, t, ncclSum, 0, c, s);
}
EXPORT ncclResult_t ncclBroadcast(const void *in, void *out, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
  return queue(FROM_ROOT, in, out, n, t, ncclSum, root, c, s);
}
EXPORT ncclResult_t ncclBcast(void *both, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
  return ncclBroadcast(both, both, n, t, root, c, s);
}
EXPORT ncclResult_t ncclAlltoAll(const void *in, void *out, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return queue(EACH_TO_EACH, in, out, n, t, ncclSum, 0, c, s);
}

/* What would seem to work and exchange nothing is refused. */
EXPORT ncclResult_t ncclSend(const void *in, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  (void)in, (void)n, (void)t, (void)peer, (void)c, (void)s;
  return ncclInvalidUsage;
}
EXPORT ncclResult_t ncclRecv(void *out, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  (void)out, (void)n, (void)t, (void)peer, (void)c, (void)s;
  return ncclInvalidUsage;
}
EXPORT ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config) {
  (void)c, (void)color, (void)key, (void)out, (void)config;
  return ncclInvalidUsage;
}
