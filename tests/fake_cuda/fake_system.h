// What the fake driver asks of the operating system: a lock, a clock, memory, and what graphics APIs share memory by.
#ifndef SUMI_FAKE_SYSTEM_H
#define SUMI_FAKE_SYSTEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void fake_system_lock(void);
void fake_system_unlock(void);
uint64_t fake_system_now_ns(void); // monotonic
void fake_system_sleep_ns(uint64_t ns);

// Memory that is aligned to `alignment`, a power of two of at most 4096, with `fill` in each byte. NULL: there is no
// more.
void* fake_system_allocate(size_t alignment, size_t bytes, int fill);
void fake_system_release(void* memory, size_t bytes); // all of it; accepts NULL

// A file without a name, by which shared memory and semaphores are known, and further descriptors of it. Windows has
// none: the calls abort there.
int fake_system_file_begin(void);
int fake_system_file_copy(int descriptor);
void fake_system_file_close(int descriptor);
unsigned long long fake_system_file_of(int descriptor); // the same for all descriptors of a file; 0: it is not open
// A handle of the operating system, by which they are known on Windows. Elsewhere it is only a number.
void* fake_system_handle_begin(void);
bool fake_system_handle_end(void* handle); // false: somebody else has closed it
#endif
