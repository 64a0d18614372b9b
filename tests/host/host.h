// What a kernel on the host asks of the runtime.

#pragma once

#include <stddef.h>
#include <stdint.h>

#define CONVERGENT __attribute__((convergent, nomerge))

typedef unsigned int uint;
typedef uint uint3 __attribute__((ext_vector_type(3)));

namespace host {

// The Metal attributes that are modelled, by their names there.
struct Thread {
    uint3 thread_position_in_grid;
    uint3 thread_position_in_threadgroup;
    uint3 threadgroup_position_in_grid;
    uint3 threadgroups_per_grid;
    uint3 threads_per_threadgroup;
    uint thread_index_in_threadgroup;
    uint thread_index_in_simdgroup;
    uint simdgroup_index_in_threadgroup;
};

enum Fast { EXACT, POISON, PERTURB };
enum SumOrder { UP, DOWN, TREE };
enum Function { EXP, EXP2, LOG, LOG2 };

struct Numbers {
    int fast;
    int sum_order;
    int flush;
    uint32_t seed;
};

// What the lanes of a SIMD group handed in.
struct Lanes {
    uint64_t bits[32];
    uint count;
};

extern const Thread* current;
extern Numbers numbers;

}  // namespace host

// The driver replaces each `site` by the place of the call in the kernel's text.
extern "C" {
CONVERGENT void host_barrier(uint flags, uint site);
CONVERGENT const host::Lanes* host_gather(uint64_t bits, uint site);
void* host_slot(int index, size_t bytes, size_t cell);
float host_math(host::Function function, bool fast, float x);
}
