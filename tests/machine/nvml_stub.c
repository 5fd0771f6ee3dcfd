/* A libnvidia-ml.so.1 that answers from a text file, read again at each call.
 *
 * NVML_STUB_SCRIPT names the file: one "key value" a line, the last one wins. A key is looked up
 * for the device first ("gpu1.util", "mig0.2.util"), then for its card ("gpu0.util"), then for all
 * ("util"). "err.util 3" makes that reading return error 3, with the same three levels
 * ("gpu1.err.util 3"). Compiled with -DWITHOUT_<symbol>, that symbol is left out, as in an older
 * driver. tests/nvml_stub.py builds it and lists the keys.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, UNKNOWN = 999 };
enum { GPUS = 16, SLOTS = 8 };

typedef struct { int gpu, slot; } device; /* slot -1: the card itself */
static device cards[GPUS], slices[GPUS][SLOTS];

typedef unsigned long long u64;

static int lookup(const char *key, char *value, size_t size) {
  const char *path = getenv("NVML_STUB_SCRIPT");
  FILE *file = path ? fopen(path, "r") : NULL;
  char line[512], name[128];
  int used, found = 0;
  if (!file) return 0;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    if (sscanf(line, "%127s %n", name, &used) == 1 && !strcmp(name, key)) {
      snprintf(value, size, "%s", line + used);
      found = 1;
    }
  }
  fclose(file);
  return found;
}

static int find(const device *d, const char *prefix, const char *key, char *value, size_t size) {
  char full[160];
  if (d && d->slot >= 0) {
    snprintf(full, sizeof full, "mig%d.%d.%s%s", d->gpu, d->slot, prefix, key);
    if (lookup(full, value, size)) return 1;
  }
  if (d) {
    snprintf(full, sizeof full, "gpu%d.%s%s", d->gpu, prefix, key);
    if (lookup(full, value, size)) return 1;
  }
  snprintf(full, sizeof full, "%s%s", prefix, key);
  return lookup(full, value, size);
}

static int error(const device *d, const char *key) {
  char value[64];
  return find(d, "err.", key, value, sizeof value) ? atoi(value) : SUCCESS;
}

static int text(const device *d, const char *key, char *out, unsigned size) {
  int code = error(d, key);
  if (code) return code;
  return find(d, "", key, out, size) ? SUCCESS : NOT_SUPPORTED;
}

static int number(const device *d, const char *key, u64 *out) {
  char value[64];
  int code = text(d, key, value, sizeof value);
  if (!code) *out = strtoull(value, NULL, 0);
  return code;
}

static int small(const device *d, const char *key, unsigned *out) {
  u64 value = 0;
  int code = number(d, key, &value);
  if (!code) *out = (unsigned)value;
  return code;
}

/* --- the library ------------------------------------------------------------------------- */

int nvmlInitWithFlags(unsigned flags) {
  (void)flags;
  for (int i = 0; i < GPUS; i++) {
    cards[i] = (device){i, -1};
    for (int k = 0; k < SLOTS; k++) slices[i][k] = (device){i, k};
  }
  return error(NULL, "init");
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
  static char message[32];
  snprintf(message, sizeof message, "stub error %d", code);
  return message;
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) { return text(NULL, "driver", out, size); }

int nvmlDeviceGetCount_v2(unsigned *count) { return small(NULL, "count", count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out) {
  if (index >= GPUS) return NOT_FOUND;
  *out = &cards[index];
  return error(*out, "handle");
}

/* --- what a device is -------------------------------------------------------------------- */

int nvmlDeviceGetName(device *d, char *out, unsigned size) { return text(d, "name", out, size); }
int nvmlDeviceGetUUID(device *d, char *out, unsigned size) { return text(d, "uuid", out, size); }

int nvmlDeviceGetCudaComputeCapability(device *d, int *major, int *minor) {
  char value[32];
  int code = text(d, "capability", value, sizeof value);
  if (!code && sscanf(value, "%d.%d", major, minor) != 2) return UNKNOWN;
  return code;
}

int nvmlDeviceGetMigMode(device *d, unsigned *current, unsigned *pending) {
  int code = small(d, "mig", current);
  *pending = *current;
  return code;
}

int nvmlDeviceGetMaxMigDeviceCount(device *d, unsigned *count) {
  (void)d;
  *count = SLOTS - 1;
  return SUCCESS;
}

int nvmlDeviceGetMigDeviceHandleByIndex(device *d, unsigned index, device **out) {
  char key[64], value[128];
  if (index >= SLOTS) return NOT_FOUND;
  snprintf(key, sizeof key, "mig%d.%u.uuid", d->gpu, index);
  if (!lookup(key, value, sizeof value)) return NOT_FOUND;
  *out = &slices[d->gpu][index];
  return SUCCESS;
}

/* --- what it reads ------------------------------------------------------------------------ */

typedef struct { u64 total, free, used; } memory_v1;
typedef struct { unsigned version; u64 total, reserved, free, used; } memory_v2;

int nvmlDeviceGetMemoryInfo(device *d, memory_v1 *out) {
  u64 total = 0, used = 0, reserved = 0;
  int code = error(d, "memory");
  if (!code) code = number(d, "memory.total", &total);
  if (code) return code;
  number(d, "memory.used", &used);
  number(d, "memory.reserved", &reserved);
  *out = (memory_v1){total, total - used - reserved, used + reserved};
  return SUCCESS;
}

#ifndef WITHOUT_nvmlDeviceGetMemoryInfo_v2
int nvmlDeviceGetMemoryInfo_v2(device *d, memory_v2 *out) {
  u64 total = 0, used = 0, reserved = 0;
  int code = error(d, "memory");
  if (!code) code = number(d, "memory.total", &total);
  if (code) return code;
  number(d, "memory.used", &used);
  number(d, "memory.reserved", &reserved);
  *out = (memory_v2){out->version, total, reserved, total - used - reserved, used};
  return SUCCESS;
}
#endif

typedef struct { unsigned gpu, memory; } utilization;

int nvmlDeviceGetUtilizationRates(device *d, utilization *out) {
  out->memory = 0;
  return small(d, "util", &out->gpu);
}

int nvmlDeviceGetPowerUsage(device *d, unsigned *out) { return small(d, "power", out); }
int nvmlDeviceGetEnforcedPowerLimit(device *d, unsigned *out) { return small(d, "power.limit", out); }

#ifndef WITHOUT_nvmlDeviceGetTotalEnergyConsumption
int nvmlDeviceGetTotalEnergyConsumption(device *d, u64 *out) { return number(d, "energy", out); }
#endif

int nvmlDeviceGetClockInfo(device *d, int kind, unsigned *out) {
  return kind == 1 ? small(d, "clock.sm", out) : NOT_SUPPORTED;
}

#ifndef WITHOUT_nvmlDeviceGetCurrentClocksEventReasons
int nvmlDeviceGetCurrentClocksEventReasons(device *d, u64 *out) { return number(d, "events", out); }
#endif

#ifndef WITHOUT_nvmlDeviceGetCurrentClocksThrottleReasons
int nvmlDeviceGetCurrentClocksThrottleReasons(device *d, u64 *out) {
  return number(d, "events", out);
}
#endif

/* "processes 4711:1073741824,4712:-" : pid and bytes; "-" where the driver does not know. */
typedef struct { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; } process;

__attribute__((unused)) static int processes(device *d, unsigned *count, process *out) {
  char value[400], *rest = value, *entry;
  unsigned room = *count, seen = 0;
  int code = error(d, "processes");
  if (code) return code;
  *count = 0;
  if (!find(d, "", "processes", value, sizeof value)) return SUCCESS;
  while ((entry = strsep(&rest, ","))) {
    char *bytes = strchr(entry, ':');
    if (!*entry) continue;
    if (out && seen < room) {
      unsigned pid = (unsigned)strtoul(entry, NULL, 10);
      u64 used = bytes && bytes[1] != '-' ? strtoull(bytes + 1, NULL, 10) : ~0ULL;
      out[seen] = (process){pid, used, ~0U, ~0U};
    }
    seen++;
  }
  *count = seen;
  return seen > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#ifndef WITHOUT_nvmlDeviceGetComputeRunningProcesses_v3
int nvmlDeviceGetComputeRunningProcesses_v3(device *d, unsigned *count, process *out) {
  return processes(d, count, out);
}
#endif

#ifndef WITHOUT_nvmlDeviceGetComputeRunningProcesses_v2
int nvmlDeviceGetComputeRunningProcesses_v2(device *d, unsigned *count, process *out) {
  return processes(d, count, out);
}
#endif

/* "working 4711:80,4712:0" : pid and percent of the multiprocessors; without it, nothing sampled. */
typedef struct { unsigned pid; u64 at; unsigned sm, memory, encoder, decoder; } utilisation;

int nvmlDeviceGetProcessUtilization(device *d, utilisation *out, unsigned *count, u64 since) {
  char value[400], *rest = value, *entry;
  unsigned room = *count, seen = 0;
  int code = error(d, "working");
  if (code) return code;
  if (!find(d, "", "working", value, sizeof value)) return NOT_FOUND;
  while ((entry = strsep(&rest, ","))) {
    char *share = strchr(entry, ':');
    if (!*entry) continue;
    if (out && seen < room) {
      unsigned sm = share ? (unsigned)strtoul(share + 1, NULL, 10) : 0;
      out[seen] = (utilisation){(unsigned)strtoul(entry, NULL, 10), since, sm, 0, 0, 0};
    }
    seen++;
  }
  *count = seen;
  return seen > room ? INSUFFICIENT_SIZE : SUCCESS;
}
