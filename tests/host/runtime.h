// What the parts of the runtime share, and what the driver sees of it.

#pragma once

#include "host.h"

namespace host {

constexpr uint MAX_THREADS = 1024;
constexpr uint SIMD = 32;

enum Kind {
    RACE,
    RACE_ACROSS_BARRIER,  // one that does not order this memory
    READ_OF_UNWRITTEN,
    UNWRITTEN_OUTPUT,
    OUT_OF_BOUNDS,
    MISALIGNED,
    WRITE_TO_INPUT,
    DIVERGENCE,
    UNDEFINED,
};

constexpr uint NO_MEMORY = ~0u;

// Threads are numbered through the grid: group * MAX_THREADS + index.
struct Event {
    int kind;
    uint memory;
    int64_t element;
    uint site, thread, other_site, other_thread;
    uint64_t count;
    char note[256];
};

struct Buffer {
    void* data;
    uint64_t bytes;
    uint64_t cell;
    uint64_t output;
    int64_t offset;  // in bytes beyond a multiple of 16; negative: as the runtime likes
};

enum Schedule { LOCKSTEP, SERIAL, REVERSE, RANDOM };

struct Launch {
    void (*entry)(void**);
    uint grid[3], group[3];
    Buffer* buffers;
    uint count;
    int schedule;
    uint64_t seed;
    Numbers numbers;
    uint8_t* blocks;
};

// memory.cpp
constexpr uint MAX_BUFFERS = 32, MAX_SLOTS = 16;
void memory_begin(const Launch& launch, void** pointers);
void memory_new_group();
void memory_barrier(uint flags);
void memory_end(bool complete);

// events.cpp
void report(Kind kind, uint memory, int64_t element, uint site, uint other_site = 0,
            uint other_thread = 0, const char* note = "");
void start_events(Event* out, uint capacity);
uint event_count();

// fibers.cpp
void* fresh_stack(uint index, void (*start)());

// threads.cpp
uint thread_number();
uint simd_meetings();  // SIMD functions that this thread's SIMD group has been through
[[noreturn]] void abandon();  // the run cannot go on: leave the kernel for good

}  // namespace host

// Saves this stack and goes on where `load` was left.
extern "C" void host_switch(void** save, void* load);
