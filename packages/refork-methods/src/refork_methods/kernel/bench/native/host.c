/* The process that a kernel runs in. It maps the arrays, gives up every right it does not need, and then
   calls the kernel on the slots it is told. It reads no clock and knows no expected result: whatever the
   kernel does to this process, it can only spoil its own outputs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { READS = 3, WRITES = 4, ARRAYS = 5, CREATE = 444, RESTRICT = 446, NOBODY = 65534 };
enum { RUN = 1, PING = 2, OPEN = 3 };
enum { READY = 16, DONE = 17, SIGNAL = 18, FAILED = 19 };
enum { USER = 1, LANDLOCK = 2, SECCOMP = 4 };

struct plan {
    uint64_t bytes, memory, seconds, table, row, slots, stride, guards, landlock, filter, wanted;
};
struct message {
    uint64_t kind, number, first, count;
};

extern void refork_call(char *base, const uint64_t *row);

static char *base;
static struct plan plan;
static uint64_t guards[256];

static void say(uint64_t kind, uint64_t number, uint64_t first, uint64_t count) {
    struct message told = {kind, number, first, count};
    if (write(WRITES, &told, sizeof told) != sizeof told) _exit(71);
}

static void get(void *to, size_t bytes) {
    char *at = to;
    while (bytes) {
        ssize_t got = read(READS, at, bytes);
        if (got <= 0) _exit(0);
        at += got;
        bytes -= (size_t)got;
    }
}

static void struck(int number, siginfo_t *info, void *context) {
    (void)context;
    say(SIGNAL, (uint64_t)number, (uint64_t)(uintptr_t)info->si_addr, 0);
    _exit(70);
}

static void listen_for_signals(void) {
    static char stack[1 << 16];
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action;
    const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    sigaltstack(&other, NULL);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = struck;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND;
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
}

static uint64_t address_space(void) {
    char text[64] = {0};
    int from = open("/proc/self/statm", O_RDONLY);
    if (from < 0) return 0;
    if (read(from, text, sizeof text - 1) <= 0) text[0] = 0;
    close(from);
    return strtoull(text, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void limit(int which, uint64_t value, uint64_t hard) {
    struct rlimit both = {value, hard};
    if (setrlimit(which, &both)) _exit(72);
}

/* All rights go; what cannot be given up is told by a bit that stays 0. */
static uint64_t confine(const void *rules, size_t length, struct sock_fprog *filter) {
    uint64_t held = 0, space = address_space();
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (geteuid() == 0) {
        if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY)) _exit(73);
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0); /* a change of user forgets it */
    }
    held |= USER;
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) _exit(74);
    limit(RLIMIT_CORE, 0, 0);
    limit(RLIMIT_FSIZE, 0, 0);
    limit(RLIMIT_NPROC, 0, 0);
    limit(RLIMIT_CPU, plan.seconds, plan.seconds + 1);
    if (space) limit(RLIMIT_AS, space + plan.memory, space + plan.memory);
    if (length && plan.wanted & LANDLOCK) {
        long rule = syscall(CREATE, rules, length, 0);
        if (rule >= 0 && !syscall(RESTRICT, rule, 0)) held |= LANDLOCK;
        if (rule >= 0) close((int)rule);
    }
    limit(RLIMIT_NOFILE, 5, 5);
    if (filter->len && plan.wanted & SECCOMP && !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, filter, 0, 0))
        held |= SECCOMP;
    return held;
}

/* Only what lies between the guards of slots in use can be touched. */
static void open_slots(uint64_t first, uint64_t count) {
    for (uint64_t slot = first; slot < first + count; slot++)
        for (uint64_t i = 0; i + 1 < plan.guards; i++) {
            char *from = base + plan.slots + slot * plan.stride + guards[i] + 4096;
            if (mprotect(from, guards[i + 1] - guards[i] - 4096, PROT_READ | PROT_WRITE)) _exit(75);
        }
}

/* The three descriptors that we are told, and no other. */
static void settle(char **told) {
    int high[3];
    for (int i = 0; i < 3; i++)
        if ((high[i] = fcntl(atoi(told[i]), F_DUPFD, 64)) < 0) _exit(79);
    for (int i = 0; i < 3; i++)
        if (dup2(high[i], READS + i) < 0) _exit(79);
    for (int fd = ARRAYS + 1; fd < 256; fd++) close(fd);
}

int main(int count, char **told) {
    if (count != 4) _exit(79);
    settle(told + 1);
    get(&plan, sizeof plan);
    if (plan.guards > sizeof guards / sizeof *guards) _exit(76);
    get(guards, plan.guards * sizeof *guards);
    char *rules = malloc(plan.landlock + 1), *code = malloc(plan.filter + 1);
    if (!rules || !code) _exit(77);
    get(rules, plan.landlock);
    get(code, plan.filter);
    base = mmap(NULL, plan.bytes, PROT_NONE, MAP_SHARED, ARRAYS, 0);
    if (base == MAP_FAILED || mprotect(base, plan.slots, PROT_READ)) _exit(78);
    close(ARRAYS);
    struct sock_fprog filter = {(unsigned short)(plan.filter / sizeof(struct sock_filter)), (struct sock_filter *)code};
    listen_for_signals();
    say(READY, confine(rules, plan.landlock, &filter), (uint64_t)(uintptr_t)base, 0);
    for (;;) {
        struct message asked;
        get(&asked, sizeof asked);
        if (asked.kind == OPEN) open_slots(asked.first, asked.count);
        if (asked.kind == RUN)
            for (uint64_t slot = asked.first; slot < asked.first + asked.count; slot++)
                refork_call(base, (const uint64_t *)(base + plan.table + slot * plan.row));
        say(DONE, asked.number, 0, 0);
    }
}
