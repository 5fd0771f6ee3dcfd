#define _GNU_SOURCE
#include "device.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <time.h>
#include <unistd.h>

/* Data sheets: dense rates, tensor cores with float32 sums. */
static const card_facts KNOWN[] = {
  {"rtx-3090", "NVIDIA GeForce RTX 3090", 8, 6, 82, 1695, 24.0, 0.31, 936, 25, 10,
   {35.6, 35.6, 71.0, 0.556}, 350, 25, 6, 100},
  {"rtx-4060", "NVIDIA GeForce RTX 4060", 8, 9, 24, 2460, 8.0, 0.25, 272, 12.5, 5,
   {15.1, 15.1, 30.2, 0.236}, 115, 10, 24, 100},
  {"h100", "NVIDIA H100 80GB HBM3", 9, 0, 132, 1980, 79.65, 0.46, 3350, 50, 360,
   {66.9, 494.0, 989.0, 67.0}, 700, 70, 50, 228},
};

int card_count, visible_count, visible[CARDS];
const card_facts *cards[CARDS];
shared_state *state;
ns launch_ns = 3000, context_bytes = 384L << 20;
static double slower = 1; /* FAKEGPU_SLOWER: a busy host is slow too, and would bound everything */
double clock_share = 1;   /* FAKEGPU_CLOCK: of its usual clock, as a hot or capped card runs */
unsigned clock_reasons;   /* FAKEGPU_REASONS: NVML's bits for it */
int driver_version;       /* FAKEGPU_DRIVER: newest CUDA that the driver knows, 13000 for 13.0 */
static process_slot *slots[CARDS];

ns now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000L + t.tv_nsec;
}

void spin(ns duration) {
  ns until = now() + duration;
  while (now() < until) __builtin_ia32_pause();
}

void sleep_until(ns when) {
  enum { LATE = 70000 }; /* a sleep ends up to so late */
  ns early = when - LATE;
  if (early > now()) {
    struct timespec t = {early / 1000000000L, early % 1000000000L};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR) {}
  }
  while (now() < when) __builtin_ia32_pause();
}

void fake_log(const char *format, ...) {
  static int on = -1;
  if (on < 0) on = getenv("FAKEGPU_LOG") != NULL;
  if (!on) return;
  va_list args;
  va_start(args, format);
  fprintf(stderr, "fakegpu[%d]: ", getpid());
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
}

static double number(const char *name, double otherwise) {
  const char *text = getenv(name);
  return text && *text ? atof(text) : otherwise;
}

__attribute__((constructor)) void device_start(void) {
  if (state) return;
  const char *names = getenv("FAKEGPU_CARDS");
  char copy[256], *rest = copy, *name;
  snprintf(copy, sizeof copy, "%s", names ? names : "");
  while ((name = strsep(&rest, ",")) && card_count < CARDS)
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
      if (!strcmp(name, KNOWN[i].name)) cards[card_count++] = &KNOWN[i];
  launch_ns = (ns)(1000 * number("FAKEGPU_LAUNCH_US", 3));
  slower = number("FAKEGPU_SLOWER", 1);
  driver_version = (int)number("FAKEGPU_DRIVER", 13000);
  clock_share = number("FAKEGPU_CLOCK", 1);
  clock_reasons = (unsigned)number("FAKEGPU_REASONS", 0);
  const char *key = getenv("FAKEGPU_KEY");
  int id = key ? shmget((key_t)strtol(key, NULL, 0), sizeof *state, IPC_CREAT | 0666) : -1;
  state = id < 0 ? NULL : shmat(id, NULL, 0);
  if (!state || state == (void *)-1) state = calloc(1, sizeof *state);
  int64_t zero = 0;
  if (atomic_compare_exchange_strong(&state->begun, &zero, now()))
    for (int i = 0; i < card_count; i++) {
      state->cards[i].swept = now();
      state->cards[i].outside_bytes = (int64_t)(number("FAKEGPU_FULL_GIB", 0) * (1L << 30));
    }
  const char *shown = getenv("CUDA_VISIBLE_DEVICES");
  if (!shown) {
    for (int i = 0; i < card_count; i++) visible[visible_count++] = i;
    return;
  }
  snprintf(copy, sizeof copy, "%s", shown);
  for (rest = copy; (name = strsep(&rest, ",")) && visible_count < CARDS;) {
    char *end;
    long index = strtol(name, &end, 10);
    if (!strncmp(name, "GPU-", 4)) index = strlen(name) > 30 ? name[11] - '1' : -1, end = "";
    if (end == name || *end || index < 0 || index >= card_count) break;
    visible[visible_count++] = (int)index;
  }
}

/* --- the clock ---------------------------------------------------------------------------- */

static void sweep(card_state *c) { /* empty the buckets that come into use again */
  ns ahead = now() + 60 * 1000000000L, from = atomic_load(&c->swept);
  if (ahead - from < 1000000000L || !atomic_compare_exchange_strong(&c->swept, &from, ahead)) return;
  int64_t first = from / BUCKET_NS + 1, last = ahead / BUCKET_NS;
  if (last - first > BUCKETS) first = last - BUCKETS;
  for (int64_t b = first; b <= last; b++)
    for (int e = 0; e < ENGINES; e++) atomic_store(&c->busy[e][b % BUCKETS], 0);
}

static void note_busy(card_state *c, enum engine e, ns begin, ns end) {
  sweep(c);
  for (ns at = begin; at < end;) {
    ns edge = (at / BUCKET_NS + 1) * BUCKET_NS, to = edge < end ? edge : end;
    atomic_fetch_add(&c->busy[e][at / BUCKET_NS % BUCKETS], (int32_t)(to - at));
    at = to;
  }
  atomic_fetch_add(&c->busy_ns[e], end - begin);
}

ns slowed(ns duration) { return (ns)((double)duration * slower); }

ns queue_work(int card, enum engine engine, ns ready, ns duration) {
  card_state *c = &state->cards[card];
  duration = slowed(duration);
  if (engine == COMPUTE) duration = (ns)((double)duration / clock_share);
  int64_t last = atomic_load(&c->end[engine]), begin;
  do begin = last > ready ? last : ready;
  while (!atomic_compare_exchange_weak(&c->end[engine], &last, begin + duration));
  note_work(card, engine, begin, begin + duration);
  return begin + duration;
}

void note_work(int card, enum engine engine, ns begin, ns end) {
  note_busy(&state->cards[card], engine, begin, end);
  if (!slots[card]) return;
  atomic_fetch_add(&slots[card]->busy_ns, end - begin);
  atomic_store(&slots[card]->last_busy, end);
}

double at_work(int card, ns from, ns to) {
  int64_t sum = 0, first = from / BUCKET_NS, last = to / BUCKET_NS;
  for (int64_t b = first; b < last; b++) {
    int32_t computed = atomic_load(&state->cards[card].busy[COMPUTE][b % BUCKETS]);
    int32_t exchanged = atomic_load(&state->cards[card].busy[EXCHANGE][b % BUCKETS]);
    sum += computed > exchanged ? computed : exchanged;
  }
  return last > first ? (double)sum / ((double)(last - first) * BUCKET_NS) : 0.0;
}

/* --- memory -------------------------------------------------------------------------------- */

int64_t total_bytes(int card) {
  return (int64_t)((cards[card]->total_gib - cards[card]->reserved_gib) * (1L << 30));
}

int64_t used_bytes(int card) {
  card_state *c = &state->cards[card];
  int64_t sum = atomic_load(&c->outside_bytes);
  int alive = 0;
  for (int i = 0; i < PROCESSES; i++) {
    process_slot *p = &c->processes[i];
    int pid = atomic_load(&p->pid);
    if (!pid) continue;
    if (kill(pid, 0) && errno == ESRCH) { /* the driver clears up after the dead */
      atomic_store(&p->bytes, 0);
      atomic_store(&p->pid, 0);
      continue;
    }
    alive++;
    sum += atomic_load(&p->bytes);
  }
  if (!alive)
    for (int e = 0; e < ENGINES; e++) {
      int64_t end = atomic_load(&c->end[e]);
      if (end > now()) atomic_compare_exchange_strong(&c->end[e], &end, now());
    }
  return sum;
}

static pid_t owner;

static void leave(void) {
  if (owner != getpid()) return;
  for (int i = 0; i < card_count; i++)
    if (slots[i]) {
      atomic_store(&slots[i]->bytes, 0);
      atomic_store(&slots[i]->pid, 0);
    }
}

void open_context(int card) {
  if (slots[card]) return;
  owner = getpid();
  used_bytes(card);
  for (int i = 0; i < PROCESSES; i++) {
    process_slot *p = &state->cards[card].processes[i];
    int zero = 0;
    if (!atomic_compare_exchange_strong(&p->pid, &zero, owner)) continue;
    atomic_store(&p->busy_ns, 0);
    atomic_store(&p->last_busy, 0);
    atomic_store(&p->bytes, context_bytes);
    slots[card] = p;
    atomic_fetch_add(&state->cards[card].contexts, 1);
    atexit(leave);
    return;
  }
}

int take_memory(int card, int64_t bytes) {
  open_context(card);
  if (bytes > 0 && used_bytes(card) + bytes > total_bytes(card)) return -1;
  if (slots[card]) atomic_fetch_add(&slots[card]->bytes, bytes);
  return 0;
}
