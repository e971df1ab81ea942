/* A disk that fails: LD_PRELOAD it, with FAILING_DISK the name of a file of two numbers of 8 bytes and a text: how many
   calls that change or sync a file with that text in its path still pass, and how many after these come back with EIO. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static struct rule {
    atomic_long passes, fails;
    char place[256];
} *rule;

__attribute__((constructor)) static void open_file(void) {
    const char *name = getenv("FAILING_DISK");
    int file = name ? open(name, O_RDWR | O_CLOEXEC) : -1;
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *rule, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        rule = mapped;
    if (file >= 0)
        close(file);
}

static int fails(int file) {
    char link[64], path[4096];
    if (!rule)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return strstr(path, rule->place) && rule->passes-- <= 0 && rule->fails-- > 0;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAIL() do { errno = EIO; return -1; } while (0)

ssize_t write(int file, const void *data, size_t length) { REAL(write); if (fails(file)) FAIL(); return real(file, data, length); }
ssize_t writev(int file, const struct iovec *data, int count) { REAL(writev); if (fails(file)) FAIL(); return real(file, data, count); }
ssize_t pwrite(int file, const void *data, size_t length, off_t at) { REAL(pwrite); if (fails(file)) FAIL(); return real(file, data, length, at); }
ssize_t pwrite64(int file, const void *data, size_t length, off64_t at) { REAL(pwrite64); if (fails(file)) FAIL(); return real(file, data, length, at); }
int fsync(int file) { REAL(fsync); if (fails(file)) FAIL(); return real(file); }
int fdatasync(int file) { REAL(fdatasync); if (fails(file)) FAIL(); return real(file); }
int ftruncate(int file, off_t length) { REAL(ftruncate); if (fails(file)) FAIL(); return real(file, length); }
int ftruncate64(int file, off64_t length) { REAL(ftruncate64); if (fails(file)) FAIL(); return real(file, length); }
