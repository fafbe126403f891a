/* An allocator that a program brings along: it gives out, and takes nothing back. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ROOM ((size_t)256 << 20)

static char arena[ROOM] __attribute__((aligned(4096)));
static size_t used;

static void *take(size_t alignment, size_t length)
{
	size_t whole = (length + 15) / 16 * 16 + 16, from, at;

	if (alignment < 16)
		alignment = 16;
	from = __atomic_fetch_add(&used, whole + alignment, __ATOMIC_RELAXED);
	if (from + whole + alignment > ROOM) {
		errno = ENOMEM;
		return NULL;
	}
	at = (from + 16 + alignment - 1) / alignment * alignment;
	memcpy(arena + at - 16, &length, sizeof length);
	return arena + at;
}

void *malloc(size_t length)
{
	return take(16, length);
}

void *calloc(size_t count, size_t length)
{
	return take(16, count * length);
}

size_t malloc_usable_size(void *block)
{
	size_t length = 0;

	if (block)
		memcpy(&length, (char *)block - 16, sizeof length);
	return length;
}

void free(void *block)
{
	/* Nobody else's. */
	if (block && ((char *)block < arena || (char *)block >= arena + ROOM))
		__builtin_trap();
}

void *realloc(void *block, size_t length)
{
	size_t before = malloc_usable_size(block);
	void *now = take(16, length);

	if (now && block)
		memcpy(now, block, before < length ? before : length);
	return now;
}

void *aligned_alloc(size_t alignment, size_t length)
{
	return take(alignment, length);
}

void *memalign(size_t alignment, size_t length)
{
	return take(alignment, length);
}

int posix_memalign(void **block, size_t alignment, size_t length)
{
	*block = take(alignment, length);
	return *block ? 0 : ENOMEM;
}
