// record CASES DEVICE: runs each case of the file CASES (its language is described at its head)
// in a fresh process against ibv_reg_mr of DEVICE, and prints one JSON object per case.
//
// Whatever a case asks the kernel to judge (register, deregister, mlock) is recorded with its
// outcome and with VmPin and VmLck before and after. Whatever only sets the stage (map, unmap,
// limits, privilege) must succeed: a failure there ends the run, since the table would lie.
// No address of the process is printed, so two runs on one kernel print the same bytes.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_LINES = 2048, MAX_WORDS = 8, MAX_NAMED = 16, MAX_THREADS = 8, NOBODY = 65534 };
static const uint64_t PAGE = 4096, HUGE_PAGE = 2 << 20;

struct line { int number, words; char *word[MAX_WORDS], *rest; };
struct region { char *name; char *base; };
struct registered { char *name; struct ibv_mr *mr; };

static struct line lines[MAX_LINES];
static int line_count;
static const char *device_name;

// State of the process that runs a case.
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct region regions[MAX_NAMED];
static int region_count;
static struct registered registered[MAX_NAMED * MAX_THREADS];
static int registered_count;
static const char *process_name = "first";
static bool first_step = true;

__attribute__((noreturn, format(printf, 2, 3))) static void die(const struct line *at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "record: line %d: ", at ? at->number : 0);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  _exit(1);
}

// --- reading the cases ---------------------------------------------------------------------------

static void read_cases(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) die(NULL, "%s: %s", path, strerror(errno));
  char *text = NULL;
  size_t size = 0;
  for (int number = 1; getline(&text, &size, file) > 0; number++) {
    text[strcspn(text, "\n")] = 0;
    if (!*text || *text == '#') continue;
    if (line_count == MAX_LINES) die(NULL, "more than %d lines", MAX_LINES);
    struct line *l = &lines[line_count++];
    l->number = number;
    char *space = strchr(text, ' ');
    l->rest = strdup(space ? space + 1 : "");
    for (char *word = strtok(strdup(text), " "); word && l->words < MAX_WORDS; word = strtok(NULL, " ")) l->word[l->words++] = word;
  }
  free(text);
  fclose(file);
}

static bool is(const struct line *l, const char *op) { return !strcmp(l->word[0], op); }

static void need(const struct line *l, int words) {
  if (l->words < words) die(l, "%s takes %d words", l->word[0], words - 1);
}

// A sum of numbers with suffixes: 64K+1, 16T-4K, 0xfffffffffffff000.
static uint64_t number(const struct line *l, const char *text) {
  uint64_t sum = 0;
  for (int sign = 1;;) {
    char *end;
    uint64_t term = strtoull(text, &end, 0);
    if (end == text) die(l, "no number: %s", text);
    switch (*end) {
    case 'T': term <<= 10; /* fall through */
    case 'G': term <<= 10; /* fall through */
    case 'M': term <<= 10; /* fall through */
    case 'K': term <<= 10; end++;
    }
    sum += sign > 0 ? term : -term;
    if (!*end) return sum;
    if (*end != '+' && *end != '-') die(l, "no number: %s", text);
    sign = *end == '+' ? 1 : -1;
    text = end + 1;
  }
}

static rlim_t limit(const struct line *l, const char *text) { return strcmp(text, "unlimited") ? number(l, text) : RLIM_INFINITY; }

static const struct { const char *name; int flag; } RIGHTS[] = {
    {"LOCAL_WRITE", IBV_ACCESS_LOCAL_WRITE},     {"REMOTE_WRITE", IBV_ACCESS_REMOTE_WRITE}, {"REMOTE_READ", IBV_ACCESS_REMOTE_READ},
    {"REMOTE_ATOMIC", IBV_ACCESS_REMOTE_ATOMIC}, {"MW_BIND", IBV_ACCESS_MW_BIND},
};
enum { RIGHTS_COUNT = sizeof RIGHTS / sizeof *RIGHTS };

static int access_of(const struct line *l, const char *text) {
  int access = 0;
  if (!strcmp(text, "0")) return 0;
  char *copy = strdup(text), *save = NULL;
  for (char *name = strtok_r(copy, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
    int i = 0;
    while (i < RIGHTS_COUNT && strcmp(RIGHTS[i].name, name)) i++;
    if (i == RIGHTS_COUNT) die(l, "no such right: %s", name);
    access |= RIGHTS[i].flag;
  }
  free(copy);
  return access;
}

// --- what is recorded ----------------------------------------------------------------------------

static const char *outcome(const struct line *l, int error) {
  switch (error) {
  case 0: return "ok";
  case EINVAL: return "EINVAL";
  case ENOMEM: return "ENOMEM";
  case EPERM: return "EPERM";
  case EFAULT: return "EFAULT";
  case EOPNOTSUPP: return "EOPNOTSUPP";
  case EAGAIN: return "EAGAIN";
  }
  die(l, "unexpected errno %d: %s", error, strerror(error));
}

struct counters { long pin, lck; };

static struct counters counters(void) {
  struct counters c = {-1, -1};
  char text[256];
  FILE *file = fopen("/proc/self/status", "r");
  if (!file) die(NULL, "/proc/self/status: %s", strerror(errno));
  while (fgets(text, sizeof text, file)) {
    sscanf(text, "VmPin: %ld", &c.pin);
    sscanf(text, "VmLck: %ld", &c.lck);
  }
  fclose(file);
  if (c.pin < 0 || c.lck < 0) die(NULL, "no VmPin or VmLck");
  return c;
}

static void begin_step(const struct line *l) {
  printf("%s\n      {\"op\": \"%s\", \"process\": \"%s\"", first_step ? "" : ",", l->word[0], process_name);
  first_step = false;
}

static void print_memlock(rlim_t soft, rlim_t hard) {
  printf("\"memlock\": {\"soft\": ");
  soft == RLIM_INFINITY ? printf("null") : printf("%llu", (unsigned long long)soft);
  printf(", \"hard\": ");
  hard == RLIM_INFINITY ? printf("null}") : printf("%llu}", (unsigned long long)hard);
}

static void print_access(int access) {
  printf(", \"access\": [");
  const char *comma = "";
  for (int i = 0; i < RIGHTS_COUNT; i++)
    if (access & RIGHTS[i].flag) printf("%s\"%s\"", comma, RIGHTS[i].name), comma = ", ";
  printf("]");
}

static void end_step(struct counters before) {
  struct counters after = counters();
  printf(", \"vm_pin_kib\": [%ld, %ld], \"vm_lck_kib\": [%ld, %ld]}", before.pin, after.pin, before.lck, after.lck);
}

// --- setting the stage ---------------------------------------------------------------------------

// Leaves the process with CAP_IPC_LOCK as told and every other capability as it is.
static void set_ipc_lock(const struct line *l, bool held, bool only) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  if (syscall(SYS_capget, &header, data)) die(l, "capget: %s", strerror(errno));
  uint32_t bit = 1u << CAP_IPC_LOCK;
  for (int i = 0; i < 2; i++) {
    if (only) data[i].effective = data[i].permitted = data[i].inheritable = 0;
    if (i) continue;
    data[i].effective = held ? data[i].effective | bit : data[i].effective & ~bit;
    data[i].permitted = held ? data[i].permitted | bit : data[i].permitted & ~bit;
    data[i].inheritable &= ~bit;
  }
  if (syscall(SYS_capset, &header, data)) die(l, "capset: %s", strerror(errno));
}

static void leave_root(const struct line *l) {
  if (setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)) die(l, "setresuid: %s", strerror(errno));
}

static void wait_for(const struct line *l, pid_t child);

// Root of a new user namespace that maps one unprivileged id, or every id to itself. The latter may
// be written only from outside: a child stays there for it.
static void enter_user_namespace(const struct line *l, bool all_ids) {
  int made[2];
  pid_t writer = -1;
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/uid_map", getpid());
  if (!all_ids) leave_root(l);
  // The change of user made /proc/PID root's; uid_map is to be written by ourselves.
  if (prctl(PR_SET_DUMPABLE, 1)) die(l, "PR_SET_DUMPABLE: %s", strerror(errno));
  if (all_ids) {
    fflush(stdout);
    if (pipe2(made, O_CLOEXEC) || (writer = fork()) < 0) die(l, "fork: %s", strerror(errno));
    if (writer == 0) {
      char byte;
      int fd;
      _exit(read(made[0], &byte, 1) == 1 && (fd = open(path, O_WRONLY)) >= 0 && dprintf(fd, "0 0 4294967295") > 0 ? 0 : 1);
    }
  }
  if (unshare(CLONE_NEWUSER)) die(l, "unshare: %s", strerror(errno));
  if (all_ids) {
    if (write(made[1], "", 1) != 1) die(l, "pipe: %s", strerror(errno));
    wait_for(l, writer);
    close(made[0]), close(made[1]);
  } else {
    int fd = open(path, O_WRONLY);
    if (fd < 0 || dprintf(fd, "0 %d 1", NOBODY) < 0 || close(fd)) die(l, "%s: %s", path, strerror(errno));
  }
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct data[2];
  if (getuid() || syscall(SYS_capget, &header, data) || !(data[0].effective & 1u << CAP_IPC_LOCK)) die(l, "not root in the namespace");
}

static void become(const struct line *l, const char *privilege) {
  if (!strcmp(privilege, "root")) return;
  if (!strcmp(privilege, "root_without_ipc_lock")) return set_ipc_lock(l, false, false);
  if (!strcmp(privilege, "unprivileged")) return leave_root(l);
  if (!strcmp(privilege, "unprivileged_with_ipc_lock")) {
    if (prctl(PR_SET_KEEPCAPS, 1)) die(l, "PR_SET_KEEPCAPS: %s", strerror(errno));
    leave_root(l);
    return set_ipc_lock(l, true, true);
  }
  if (!strcmp(privilege, "user_namespace_root") || !strcmp(privilege, "user_namespace_all_ids")) return enter_user_namespace(l, privilege[15] == 'a');
  die(l, "no such privilege: %s", privilege);
}

static void set_memlock(const struct line *l, rlim_t soft, rlim_t hard) {
  struct rlimit r = {soft, hard};
  if (setrlimit(RLIMIT_MEMLOCK, &r)) die(l, "setrlimit: %s", strerror(errno));
}

static void open_device(void) {
  int count;
  struct ibv_device **list = ibv_get_device_list(&count);
  context = NULL;
  for (int i = 0; list && i < count; i++)
    if (!strcmp(ibv_get_device_name(list[i]), device_name)) context = ibv_open_device(list[i]);
  if (!context || !(pd = ibv_alloc_pd(context))) die(NULL, "%s: cannot be opened: %s", device_name, strerror(errno));
}

// KiB of a field of the mapping that starts at `base`.
static long smaps_kib(const struct line *l, const char *base, const char *field) {
  char text[512];
  bool inside = false;
  long value = -1;
  FILE *file = fopen("/proc/self/smaps", "r");
  if (!file) die(l, "/proc/self/smaps: %s", strerror(errno));
  while (fgets(text, sizeof text, file)) {
    unsigned long start, end;
    if (sscanf(text, "%lx-%lx ", &start, &end) == 2) inside = start == (unsigned long)base;
    else if (inside && !strncmp(text, field, strlen(field))) value = atol(text + strlen(field) + 1);
  }
  fclose(file);
  return value;
}

static void run_map(const struct line *l) {
  need(l, 5);
  const char *kind = l->word[2], *protection = l->word[4];
  uint64_t length = number(l, l->word[3]);
  bool huge = !strcmp(kind, "huge2m"), thp = !strcmp(kind, "thp"), shared = !strcmp(kind, "shared"), untouched = !strcmp(kind, "untouched");
  if (!huge && !thp && !shared && !untouched && strcmp(kind, "small")) die(l, "no such kind: %s", kind);
  if (region_count == MAX_NAMED) die(l, "too many regions");
  // Far below where the kernel puts mappings by itself, so that what is unmapped stays so.
  char *base = (char *)(0x100000000000 + 0x10000000000 * (uint64_t)region_count);
  int fd = -1;
  if (shared && ((fd = memfd_create("shared", MFD_CLOEXEC)) < 0 || ftruncate(fd, length))) die(l, "memfd: %s", strerror(errno));
  int flags = MAP_FIXED_NOREPLACE | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS) | (huge ? MAP_HUGETLB : 0);
  if (mmap(base, length, PROT_READ | PROT_WRITE, flags, fd, 0) != base) die(l, "mmap: %s", strerror(errno));
  if (fd >= 0) close(fd);
  if (!huge && madvise(base, length, thp ? MADV_HUGEPAGE : MADV_NOHUGEPAGE)) die(l, "madvise: %s", strerror(errno));
  for (uint64_t i = 0; !untouched && i < length; i += PAGE) base[i] = 1;
  if (thp && smaps_kib(l, base, "AnonHugePages:") != (long)(length >> 10)) die(l, "not backed by transparent huge pages");
  if (huge && smaps_kib(l, base, "KernelPageSize:") != (long)(HUGE_PAGE >> 10)) die(l, "not backed by 2 MiB pages");
  int bits = !strcmp(protection, "rw") ? PROT_READ | PROT_WRITE : !strcmp(protection, "r") ? PROT_READ : !strcmp(protection, "none") ? PROT_NONE : -1;
  if (bits < 0) die(l, "no such protection: %s", protection);
  if (mprotect(base, length, bits)) die(l, "mprotect: %s", strerror(errno));
  regions[region_count++] = (struct region){l->word[1], base};
  begin_step(l);
  printf(", \"region\": \"%s\", \"kind\": \"%s\", \"length\": %llu, \"protection\": \"%s\"}", l->word[1], kind, (unsigned long long)length, protection);
}

static char *address(const struct line *l, const char *region, const char *offset) {
  if (!strcmp(region, "absolute")) return (char *)number(l, offset);
  for (int i = 0; i < region_count; i++)
    if (!strcmp(regions[i].name, region)) return regions[i].base + number(l, offset);
  die(l, "no such region: %s", region);
}

// --- what the kernel judges ----------------------------------------------------------------------

static struct registered *find(const char *name) {
  for (int i = 0; i < registered_count; i++)
    if (registered[i].mr && !strcmp(registered[i].name, name)) return &registered[i];
  return NULL;
}

static void keep(const struct line *l, char *name, struct ibv_mr *mr) {
  if (registered_count == (int)(sizeof registered / sizeof *registered)) die(l, "too many regions");
  registered[registered_count++] = (struct registered){name, mr};
}

static int register_range(char *start, uint64_t length, int access, struct ibv_mr **mr) {
  errno = 0;
  // By the function and not by the header's macro: the macro picks another entry point when the
  // access is no constant, to let optional rights through. There are none here.
  *mr = (ibv_reg_mr)(pd, start, length, access);
  if (*mr) return 0;
  return errno ? errno : -1;
}

static void run_register(const struct line *l) {
  need(l, 6);
  char *start = address(l, l->word[2], l->word[3]);
  uint64_t length = number(l, l->word[4]);
  int access = access_of(l, l->word[5]);
  if (find(l->word[1])) die(l, "%s is registered", l->word[1]);
  struct counters before = counters();
  struct ibv_mr *mr;
  int error = register_range(start, length, access, &mr);
  begin_step(l);
  printf(", \"mr\": \"%s\", \"region\": \"%s\", \"offset\": %llu, \"length\": %llu", l->word[1], l->word[2],
         (unsigned long long)number(l, l->word[3]), (unsigned long long)length);
  print_access(access);
  printf(", \"outcome\": \"%s\"", outcome(l, error));
  end_step(before);
  if (mr) keep(l, l->word[1], mr);
}

static void run_deregister(const struct line *l) {
  need(l, 2);
  bool each = is(l, "deregister_each");
  struct counters before = counters();
  struct registered *r = find(l->word[1]);
  if (!r && !each) die(l, "%s is not registered", l->word[1]);
  int error = 0;
  do {
    error = r ? ibv_dereg_mr(r->mr) : 0;
    if (r) r->mr = NULL;
  } while (!error && each && (r = find(l->word[1])));
  begin_step(l);
  printf(", \"mr\": \"%s\", \"outcome\": \"%s\"", l->word[1], outcome(l, error));
  end_step(before);
}

static void run_mlock(const struct line *l) {
  need(l, 4);
  char *start = address(l, l->word[1], l->word[2]);
  uint64_t length = number(l, l->word[3]);
  struct counters before = counters();
  int error = mlock(start, length) ? errno : 0;
  begin_step(l);
  printf(", \"region\": \"%s\", \"offset\": %llu, \"length\": %llu, \"outcome\": \"%s\"", l->word[1],
         (unsigned long long)number(l, l->word[2]), (unsigned long long)length, outcome(l, error));
  end_step(before);
}

struct work { pthread_barrier_t *start; char *base; uint64_t length; int access, rounds, error; struct ibv_mr *mr; };

static void *work_thread(void *argument) {
  struct work *w = argument;
  pthread_barrier_wait(w->start);
  for (int i = 0; i < w->rounds; i++) {
    if ((w->error = register_range(w->base, w->length, w->access, &w->mr))) return NULL;
    if (w->rounds > 1 && (w->error = ibv_dereg_mr(w->mr))) return NULL;
  }
  return NULL;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// parallel MR THREADS REGION LENGTH ACCESS and churn THREADS ROUNDS REGION LENGTH ACCESS. Which
// thread was refused is chance: the outcomes are recorded sorted.
static void run_threads(const struct line *l) {
  need(l, 6);
  bool churn = is(l, "churn");
  int threads = (int)number(l, l->word[churn ? 1 : 2]), rounds = churn ? (int)number(l, l->word[2]) : 1;
  if (threads < 1 || threads > MAX_THREADS) die(l, "1 to %d threads", MAX_THREADS);
  char *base = address(l, l->word[3], "0");
  uint64_t length = number(l, l->word[4]);
  int access = access_of(l, l->word[5]);
  pthread_barrier_t start;
  pthread_barrier_init(&start, NULL, (unsigned)threads);
  struct work work[MAX_THREADS];
  pthread_t thread[MAX_THREADS];
  struct counters before = counters();
  for (int i = 0; i < threads; i++) {
    work[i] = (struct work){&start, base + length * (uint64_t)i, length, access, rounds, 0, NULL};
    if (pthread_create(&thread[i], NULL, work_thread, &work[i])) die(l, "no thread");
  }
  const char *outcomes[MAX_THREADS];
  for (int i = 0; i < threads; i++) {
    pthread_join(thread[i], NULL);
    outcomes[i] = outcome(l, work[i].error);
    if (!churn && work[i].mr) keep(l, l->word[1], work[i].mr);
  }
  qsort(outcomes, (size_t)threads, sizeof *outcomes, by_name);
  begin_step(l);
  if (churn) printf(", \"threads\": %d, \"rounds\": %d", threads, rounds);
  else printf(", \"mr\": \"%s\", \"threads\": %d", l->word[1], threads);
  printf(", \"region\": \"%s\", \"length\": %llu", l->word[3], (unsigned long long)length);
  print_access(access);
  printf(", \"outcomes\": [");
  for (int i = 0; i < threads; i++) printf("%s\"%s\"", i ? ", " : "", outcomes[i]);
  printf("]");
  end_step(before);
}

// --- running -------------------------------------------------------------------------------------

// Waits for a child of ours and fails as it failed.
static void wait_for(const struct line *l, pid_t child) {
  int status;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status)) die(l, "the child failed (status %d)", status);
}

static void run_steps(int from, int to);

// The steps of [from, to) in a child that lives on the side; the caller waits.
static void run_process(const struct line *l, int from, int to) {
  need(l, 3);
  bool own = !strcmp(l->word[2], "own");
  if (!own && strcmp(l->word[2], "inherited")) die(l, "no such context: %s", l->word[2]);
  begin_step(l);
  printf(", \"name\": \"%s\", \"context\": \"%s\"}", l->word[1], l->word[2]);
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) die(l, "fork: %s", strerror(errno));
  if (child == 0) {
    process_name = l->word[1];
    if (own) open_device(), registered_count = 0;
    run_steps(from, to);
    fflush(stdout);
    _exit(0);
  }
  wait_for(l, child);
}

static void run_steps(int from, int to) {
  for (int i = from; i < to; i++) {
    const struct line *l = &lines[i];
    if (is(l, "map")) run_map(l);
    else if (is(l, "register")) run_register(l);
    else if (is(l, "deregister") || is(l, "deregister_each")) run_deregister(l);
    else if (is(l, "mlock")) run_mlock(l);
    else if (is(l, "parallel") || is(l, "churn")) run_threads(l);
    else if (is(l, "unmap")) {
      need(l, 4);
      uint64_t length = number(l, l->word[3]);
      if (munmap(address(l, l->word[1], l->word[2]), length)) die(l, "munmap: %s", strerror(errno));
      begin_step(l);
      printf(", \"region\": \"%s\", \"offset\": %llu, \"length\": %llu}", l->word[1], (unsigned long long)number(l, l->word[2]), (unsigned long long)length);
    } else if (is(l, "memlock")) {
      need(l, 2);
      rlim_t soft = limit(l, l->word[1]), hard = l->words > 2 ? limit(l, l->word[2]) : soft;
      set_memlock(l, soft, hard);
      begin_step(l);
      printf(", ");
      print_memlock(soft, hard);
      printf("}");
    } else if (is(l, "as")) {
      need(l, 2);
      become(l, l->word[1]);
      begin_step(l);
      printf(", \"privilege\": \"%s\"}", l->word[1]);
    } else if (is(l, "process")) {
      int end = i + 1;
      while (end < to && !is(&lines[end], "end")) end++;
      if (end == to) die(l, "no end");
      run_process(l, i + 1, end);
      i = end;
      // A child's part is never empty, and it left its steps on our output.
      first_step = false;
    } else die(l, "no such step: %s", l->word[0]);
  }
}

// A case: lines [from, to), the head being case, about, as and memlock in this order.
static void run_case(int from, int to) {
  static const char *head[] = {"case", "about", "as", "memlock"};
  for (int i = 0; i < 4; i++)
    if (from + i >= to || !is(&lines[from + i], head[i])) die(&lines[from], "a case starts with case, about, as, memlock");
  const struct line *as = &lines[from + 2], *memlock = &lines[from + 3];
  need(as, 2);
  need(memlock, 2);
  rlim_t soft = limit(memlock, memlock->word[1]), hard = memlock->words > 2 ? limit(memlock, memlock->word[2]) : soft;
  printf("    {\"name\": \"%s\",\n     \"about\": \"%s\",\n     \"privilege\": \"%s\", ", lines[from].rest, lines[from + 1].rest, as->word[1]);
  print_memlock(soft, hard);
  printf(",\n     \"steps\": [");
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) die(as, "fork: %s", strerror(errno));
  if (child == 0) {
    set_memlock(memlock, soft, hard);
    become(as, as->word[1]);
    open_device();
    struct counters c = counters();
    if (c.pin || c.lck) die(as, "a fresh process has pinned pages");
    run_steps(from + 4, to);
    fflush(stdout);
    _exit(0);
  }
  wait_for(&lines[from], child);
  printf("]}");
}

int main(int count, char **argument) {
  if (count != 3) {
    fprintf(stderr, "usage: record CASES DEVICE\n");
    return 2;
  }
  read_cases(argument[1]);
  device_name = argument[2];
  if (getuid() || sysconf(_SC_PAGESIZE) != (long)PAGE) die(NULL, "to be run as root, with pages of 4 KiB");
  const char *comma = "";
  for (int from = 0; from < line_count;) {
    int to = from + 1;
    while (to < line_count && !is(&lines[to], "case")) to++;
    printf("%s", comma);
    run_case(from, to);
    comma = ",\n";
    from = to;
  }
  printf("\n");
  return fflush(stdout) ? 1 : 0;
}
