// Loaded in front of the C library: counts calls that change files below ATTACK_ROOT, and at call ATTACK_CALL does what
// ATTACK_KIND says. ATTACK_COUNT names a file for the number of calls. Built by tools/attack.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;
static atomic_int is_full;

static const char *root(void) { return getenv("ATTACK_ROOT"); }
static long wanted(void) { const char *call = getenv("ATTACK_CALL"); return call ? atol(call) : -1; }
static int is(const char *kind) { const char *own = getenv("ATTACK_KIND"); return own && strcmp(own, kind) == 0; }
static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_below(const char *path) {
    const char *top = root();
    return top && path && strncmp(path, top, strlen(top)) == 0;
}

// Relative paths are those of the working folder, which attacks put below the root or leave alone.
static int counts_path(const char *path) {
    if (!path || path[0] == '/') return is_below(path);
    char here[PATH_MAX];
    return getcwd(here, sizeof here) && is_below(here);
}

static int counts_fd(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return is_below(path);
}

// 0: go on. Otherwise the error that the call has.
static int before(void) {
    long call = atomic_fetch_add(&calls, 1);
    if (atomic_load(&is_full)) return ENOSPC;
    if (call != wanted()) return 0;
    if (is("kill")) die();
    if (is("full")) return ENOSPC;
    if (is("broken")) return EIO;
    if (is("full-for-good")) { atomic_store(&is_full, 1); return ENOSPC; }
    return 0;
}

static int is_at_the_call(void) { return atomic_load(&calls) - 1 == wanted(); }
static void after(void) { if (is_at_the_call() && (is("after") || is("half"))) die(); }

#define CHANGE(counts, failed, call) \
    if (counts) { int fault = before(); if (fault) { errno = fault; return failed; } } \
    __typeof__(call) result = call; \
    if (counts) after(); \
    return result

static int opens_to_change(int flags) { return flags & (O_CREAT | O_WRONLY | O_RDWR | O_TRUNC); }

int open64(const char *path, int flags, ...) {
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more);
    CHANGE(opens_to_change(flags) && counts_path(path), -1, REAL(open64)(path, flags, mode));
}
int open(const char *path, int flags, ...) {
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more);
    CHANGE(opens_to_change(flags) && counts_path(path), -1, REAL(open)(path, flags, mode));
}
int openat64(int dir, const char *path, int flags, ...) {
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more);
    CHANGE(opens_to_change(flags) && counts_path(path), -1, REAL(openat64)(dir, path, flags, mode));
}
ssize_t write(int fd, const void *data, size_t length) {
    int counts = counts_fd(fd);
    if (counts) { int fault = before(); if (fault) { errno = fault; return -1; } }
    if (counts && is_at_the_call() && is("half")) { REAL(write)(fd, data, length / 2); die(); }
    ssize_t result = REAL(write)(fd, data, length);
    if (counts) after();
    return result;
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
    int counts = counts_fd(fd);
    if (counts) { int fault = before(); if (fault) { errno = fault; return -1; } }
    if (counts && is_at_the_call() && is("half")) { REAL(pwrite64)(fd, data, length / 2, at); die(); }
    ssize_t result = REAL(pwrite64)(fd, data, length, at);
    if (counts) after();
    return result;
}
ssize_t writev(int fd, const struct iovec *parts, int count) { CHANGE(counts_fd(fd), -1, REAL(writev)(fd, parts, count)); }
ssize_t copy_file_range(int in, off64_t *from, int out, off64_t *to, size_t length, unsigned flags) {
    CHANGE(counts_fd(out), -1, REAL(copy_file_range)(in, from, out, to, length, flags));
}
int fsync(int fd) { CHANGE(counts_fd(fd), -1, REAL(fsync)(fd)); }
int fdatasync(int fd) { CHANGE(counts_fd(fd), -1, REAL(fdatasync)(fd)); }
int ftruncate64(int fd, off64_t length) { CHANGE(counts_fd(fd), -1, REAL(ftruncate64)(fd, length)); }
int rename(const char *from, const char *to) { CHANGE(counts_path(to), -1, REAL(rename)(from, to)); }
int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    CHANGE(counts_path(to), -1, REAL(renameat2)(a, from, b, to, flags));
}
int unlink(const char *path) { CHANGE(counts_path(path), -1, REAL(unlink)(path)); }
int unlinkat(int dir, const char *path, int flags) { CHANGE(counts_path(path), -1, REAL(unlinkat)(dir, path, flags)); }
int rmdir(const char *path) { CHANGE(counts_path(path), -1, REAL(rmdir)(path)); }
int mkdir(const char *path, mode_t mode) { CHANGE(counts_path(path), -1, REAL(mkdir)(path, mode)); }

__attribute__((destructor)) static void tell(void) {
    const char *path = getenv("ATTACK_COUNT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld\n", atomic_load(&calls));
    fclose(file);
}
