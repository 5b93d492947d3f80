/* Ends the process at one of its writes, renames, links, unlinks and fsyncs below a folder.

   Loaded with LD_PRELOAD, so that SQLite's and safetensors' own calls are counted too. `crash_arm(folder, n)`
   starts counting; at the n-th call the process ends as after a kill. A write is cut in half first. With a
   negative number the disk is full from that call on, and nothing ends. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) __typeof__(name) *real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
enum { CRASHED = 77 };

static char root[PATH_MAX];
static long at, count;
static int full;

void crash_arm(const char *folder, long number) {
  snprintf(root, sizeof root, "%s", folder);
  at = labs(number);
  full = number < 0;
  count = 0;
}

long crash_count(void) { return count; }

static int below(const char *path) { return root[0] && strncmp(path, root, strlen(root)) == 0; }

static int fd_below(int fd) {
  char link[64], path[PATH_MAX];
  if (!root[0]) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return below(path);
}

static int path_below(int folder, const char *path) {
  if (path[0] == '/') return below(path);
  char here[PATH_MAX];
  if (folder != AT_FDCWD) return fd_below(folder);
  return getcwd(here, sizeof here) && below(here);
}

static int is_point(int counted) {
  if (!counted) return 0;
  count++;
  return full ? at && count >= at : count == at;
}

#define STEP(counted) \
  if (is_point(counted) && !full) _exit(CRASHED)
#define GROW(counted, half)                 \
  if (is_point(counted)) {                  \
    if (full) return errno = ENOSPC, -1;    \
    half;                                   \
    _exit(CRASHED);                         \
  }

ssize_t write(int fd, const void *data, size_t n) {
  REAL(write);
  GROW(fd_below(fd), if (real(fd, data, n / 2)) {})
  return real(fd, data, n);
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t place) {
  REAL(pwrite);
  GROW(fd_below(fd), if (real(fd, data, n / 2, place)) {})
  return real(fd, data, n, place);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t place) {
  REAL(pwrite64);
  GROW(fd_below(fd), if (real(fd, data, n / 2, place)) {})
  return real(fd, data, n, place);
}
ssize_t writev(int fd, const struct iovec *data, int n) { REAL(writev); GROW(fd_below(fd), ) return real(fd, data, n); }
ssize_t sendfile(int to, int from, off_t *place, size_t n) { REAL(sendfile); GROW(fd_below(to), ) return real(to, from, place, n); }
ssize_t sendfile64(int to, int from, off64_t *place, size_t n) { REAL(sendfile64); GROW(fd_below(to), ) return real(to, from, place, n); }
int fsync(int fd) { REAL(fsync); STEP(fd_below(fd)); return real(fd); }
int fdatasync(int fd) { REAL(fdatasync); STEP(fd_below(fd)); return real(fd); }
int ftruncate(int fd, off_t n) { REAL(ftruncate); STEP(fd_below(fd)); return real(fd, n); }
int ftruncate64(int fd, off64_t n) { REAL(ftruncate64); STEP(fd_below(fd)); return real(fd, n); }
int rename(const char *old, const char *new) { REAL(rename); STEP(path_below(AT_FDCWD, new)); return real(old, new); }
int renameat(int a, const char *old, int b, const char *new) { REAL(renameat); STEP(path_below(b, new)); return real(a, old, b, new); }
int link(const char *old, const char *new) { REAL(link); STEP(path_below(AT_FDCWD, new)); return real(old, new); }
int linkat(int a, const char *old, int b, const char *new, int how) { REAL(linkat); STEP(path_below(b, new)); return real(a, old, b, new, how); }
int unlink(const char *path) { REAL(unlink); STEP(path_below(AT_FDCWD, path)); return real(path); }
int unlinkat(int folder, const char *path, int how) { REAL(unlinkat); STEP(path_below(folder, path)); return real(folder, path, how); }
int rmdir(const char *path) { REAL(rmdir); STEP(path_below(AT_FDCWD, path)); return real(path); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); GROW(path_below(AT_FDCWD, path), ) return real(path, mode); }
