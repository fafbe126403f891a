/* Registers and the top of a stack, as text: where a function is that was called by f, by g, by main or by a
 * thread; and the files whose code is mapped. */
#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint64_t regs[4];
static unsigned char copy[16384];
static size_t copied;
static uint64_t top;

__attribute__((noinline)) static void capture(void)
{
#if defined(__x86_64__)
	__asm__ volatile("lea 0(%%rip), %0\n\tmov %%rsp, %1\n\tmov %%rbp, %2"
			 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]));
#elif defined(__aarch64__)
	__asm__ volatile("adr %0, .\n\tmov %1, sp\n\tmov %2, x29\n\tmov %3, x30"
			 : "=r"(regs[0]), "=r"(regs[1]), "=r"(regs[2]), "=r"(regs[3]));
#endif
	copied = top - regs[1] < sizeof copy ? top - regs[1] : sizeof copy;
	memcpy(copy, (void *)regs[1], copied);
}

__attribute__((noinline)) void g(char *room, int n)
{
	room[n % 64] = (char)n;
	capture();
	room[(n + 1) % 64] = 2;
}

static inline __attribute__((always_inline)) void inlined(char *room, int n)
{
	g(room, n);
}

__attribute__((noinline)) int f(int n)
{
	char room[64];
	memset(room, n, sizeof room);
	if (n > 1) {
		/* Not a call at the end, which would leave no frame. */
		int more = f(n - 1);
		return more + room[n % 64];
	}
	inlined(room, n);
	return room[3] + room[(n + 2) % 64];
}

static int module(struct dl_phdr_info *info, size_t size, void *unused)
{
	(void)size;
	(void)unused;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		if (p->p_type == PT_LOAD && (p->p_flags & PF_X))
			printf("module %lx %lx %lx %s\n", (unsigned long)info->dlpi_addr,
			       (unsigned long)(info->dlpi_addr + p->p_vaddr),
			       (unsigned long)(info->dlpi_addr + p->p_vaddr + p->p_memsz), info->dlpi_name);
	}
	return 0;
}

static void show(const char *name)
{
	printf("stack %s %lx %lx %lx %lx ", name, regs[0], regs[1], regs[2], regs[3]);
	for (size_t i = 0; i < copied; i++)
		printf("%02x", copy[i]);
	printf("\n");
}

static void *thread(void *n)
{
	pthread_attr_t attr;
	void *low;
	size_t size;
	pthread_getattr_np(pthread_self(), &attr);
	pthread_attr_getstack(&attr, &low, &size);
	top = (uint64_t)low + size;
	return (void *)(intptr_t)(f((int)(intptr_t)n) & 1);
}

int main(int argc, char **argv)
{
	pthread_t other;
	(void)argv;
	dl_iterate_phdr(module, NULL);
	/* What is above it is there: the environment. */
	top = (uint64_t)__builtin_frame_address(0) + 2048;
	int sum = f(argc);
	show("main");
	sum += f(argc + 2);
	show("deep");
	sum += f(argc + 1000);
	show("cut");
	if (pthread_create(&other, NULL, thread, (void *)1))
		return 1;
	pthread_join(other, NULL);
	show("thread");
	return sum == 12345;
}
