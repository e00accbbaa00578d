// Loaded before the C library into a Linux that runs as a program (LD_PRELOAD). That kernel keeps 2,696 bytes of a process's registers
// (HOST_FP_SIZE, arch/x86/um/shared/sysdep/ptrace.h). A processor with AMX has 11,008, and its kernel takes all of them or none
// (xstateregs_set, arch/x86/kernel/fpu/regset.c). So what that kernel does not know is added: registers that nobody uses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

static long (*next)(int request, ...);

__attribute__((constructor)) static void find_next(void)
{
	next = (long (*)(int, ...))dlsym(RTLD_NEXT, "ptrace");
}

// Not on the stack, which is that kernel's, and small. It has one thread.
static char area[1 << 14];
static struct iovec all = { area, 0 };

long ptrace(enum __ptrace_request request, ...)
{
	va_list args;
	va_start(args, request);
	pid_t pid = va_arg(args, pid_t);
	void *addr = va_arg(args, void *), *data = va_arg(args, void *);
	va_end(args);
	if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE) {
		struct iovec *some = data;
		if (all.iov_len == 0) {
			all.iov_len = sizeof area;
			next(PTRACE_GETREGSET, pid, addr, &all); // its length; if it fails, the request below fails, too
		}
		if (some->iov_len < all.iov_len) {
			memcpy(area, some->iov_base, some->iov_len);
			data = &all;
		}
	}
	return next(request, pid, addr, data);
}
