/* The simulated cards: their facts, their memory, and the clock of their engines.
 *
 * Time is the host's CLOCK_MONOTONIC in nanoseconds. A card has one engine that computes, one for
 * each direction of copies, and one for exchanges with other cards; each does one thing after the
 * other, for all streams and all processes. What is queued gets its begin and end at once, so
 * nothing runs in the background: a wait is a sleep until an end. Only an exchange with other
 * processes, and what is queued behind it, gets its end once all have come to it. The state of the cards lies in System V shared memory, whose key
 * is FAKEGPU_KEY, so that processes share a card and NVML tells of it.
 */
#pragma once
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef int64_t ns;

enum { CARDS = 8, PROCESSES = 64, BUCKETS = 1 << 17, BUCKET_NS = 10000000 };
enum engine { COMPUTE, TO_DEVICE, TO_HOST, EXCHANGE, ENGINES };
enum { ROOMS = 16, TURNS = 4, LETTER = 1 << 16 };
enum dtype { F32, TF32, F16, F64, DTYPES };

typedef struct {
  const char *name, *title;
  int major, minor, multiprocessors, clock_mhz;
  double total_gib, reserved_gib;      /* as NVML counts; torch sees the difference */
  double bandwidth, pcie;              /* bytes a ns, which is GB/s */
  double link;                         /* of a ring over several cards: NVLink, else through the host */
  double tflops[DTYPES];
  int limit_w, idle_w, l2_mib, shared_kib;
} card_facts;

typedef struct {
  _Atomic int pid;
  _Atomic int64_t bytes, busy_ns, last_busy;
} process_slot;

typedef struct {
  _Atomic int64_t end[ENGINES];        /* when the engine is through with what it has */
  _Atomic int64_t busy_ns[ENGINES];
  _Atomic int64_t launches, copied_bytes[ENGINES];
  _Atomic int64_t contexts;            /* processes that ever opened one */
  process_slot processes[PROCESSES];
  _Atomic int64_t outside_bytes;       /* held by nobody: FAKEGPU_FULL_GIB */
  _Atomic int32_t busy[ENGINES][BUCKETS]; /* ns of each 10 ms of the last 20 minutes */
  _Atomic int64_t swept;               /* buckets before this time are of now */
} card_state;

/* Where the ranks of one communicator meet. A rank comes to an exchange once all have come to the
 * one before, so two turns would do. */
typedef struct {
  _Atomic uint64_t id;
  _Atomic int present;
  struct {
    _Atomic int64_t number[CARDS];     /* of the exchange to which a rank has come, from 1 */
    ns ready[CARDS];
    char letter[CARDS][LETTER];        /* what a rank brings, where it is no more */
  } turns[TURNS];
} meeting_room;

typedef struct {
  _Atomic int64_t begun;
  card_state cards[CARDS];
  _Atomic int choosing, rooms_taken;
  meeting_room rooms[ROOMS];
} shared_state;

extern int card_count;
extern const card_facts *cards[CARDS];
extern shared_state *state;
extern int visible_count, visible[CARDS]; /* CUDA_VISIBLE_DEVICES */

void device_start(void);
ns now(void);
void sleep_until(ns when);
void spin(ns duration);
/* Queue work that may begin at `ready`; returns its end. */
ns queue_work(int card, enum engine engine, ns ready, ns duration);
ns slowed(ns duration); /* by FAKEGPU_SLOWER */
void note_work(int card, enum engine engine, ns begin, ns end); /* of a known stretch */
int take_memory(int card, int64_t bytes); /* 0, or -1 where the card has no more */
void open_context(int card);              /* its memory, and a place in NVML's list */
int64_t used_bytes(int card);
int64_t total_bytes(int card);            /* as torch sees it */
/* Share of a stretch in which a kernel ran: one that waits for other cards runs, too. Of kernels
 * that compute and that exchange, which run side by side, those that ran longer in each part. */
double at_work(int card, ns from, ns to);
void fake_log(const char *format, ...);
extern ns launch_ns, context_bytes;
extern double clock_share;
extern unsigned clock_reasons;
extern int driver_version;
