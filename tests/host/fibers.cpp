// Stacks of their own, and the switch from one to another.

#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef __x86_64__
#error "the fibers are written for x86-64"
#endif

asm(R"(
    .globl host_switch
    .hidden host_switch
host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

namespace host {
namespace {

constexpr size_t STACK = 64 * 1024, GUARD = 4096;
constexpr uint SAVED = 6;  // registers that host_switch restores

char* map_stacks() {
    const size_t bytes = MAX_THREADS * (STACK + GUARD);
    void* got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) {
        abort();
    }
    char* stacks = static_cast<char*>(got);
    for (uint i = 0; i < MAX_THREADS; i++) {
        mprotect(stacks + i * (STACK + GUARD), GUARD, PROT_NONE);
    }
    return stacks;
}

}  // namespace

void* fresh_stack(uint index, void (*start)()) {
    static char* stacks = map_stacks();
    // A return address below a word of padding, as a call leaves the stack.
    void** at = reinterpret_cast<void**>(stacks + (index + 1) * (STACK + GUARD)) - (SAVED + 2);
    memset(at, 0, (SAVED + 2) * sizeof(void*));
    at[SAVED] = reinterpret_cast<void*>(start);
    return at;
}

}  // namespace host
