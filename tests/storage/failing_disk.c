/* A disk that fails on demand, to be loaded before the C library (LD_PRELOAD).

   Functions of the process under test turn the faults on and off; nothing fails before. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

static volatile int sync_error, write_error, writes_left;

/* From now on every sync fails with this error; 0 for none. */
void fail_syncs(int error) { sync_error = error; }

/* After some more writes, every write fails with this error; 0 for none. */
void fail_writes(int error, int after) { write_error = error; writes_left = after; }

static int is_failing_write(int descriptor)
{
    /* The process must still be able to tell about it. */
    if (!write_error || descriptor <= 2)
        return 0;
    if (writes_left > 0) {
        writes_left--;
        return 0;
    }
    errno = write_error;
    return 1;
}

#define REAL(name) ((typeof(&name))dlsym(RTLD_NEXT, #name))

int fsync(int descriptor)
{
    if (sync_error) { errno = sync_error; return -1; }
    return REAL(fsync)(descriptor);
}

int fdatasync(int descriptor)
{
    if (sync_error) { errno = sync_error; return -1; }
    return REAL(fdatasync)(descriptor);
}

ssize_t write(int descriptor, const void *bytes, size_t size)
{
    return is_failing_write(descriptor) ? -1 : REAL(write)(descriptor, bytes, size);
}

ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t offset)
{
    return is_failing_write(descriptor) ? -1 : REAL(pwrite)(descriptor, bytes, size, offset);
}

ssize_t pwrite64(int descriptor, const void *bytes, size_t size, off64_t offset)
{
    return is_failing_write(descriptor) ? -1 : REAL(pwrite64)(descriptor, bytes, size, offset);
}
