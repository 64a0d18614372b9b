// One fiber for each thread of a threadgroup, one threadgroup at a time.

#include "runtime.h"

#include <immintrin.h>
#include <random>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace host {

const Thread* current;
Numbers numbers;

namespace {

constexpr uint GROUPS = MAX_THREADS / SIMD;

enum State { READY, AT_SIMD, AT_BARRIER, DONE };

struct Fiber {
    Thread thread;
    State state;
    uint site, flags;
    void* stack;
};

// Two sets of lanes: some may still read the last one while others fill the next.
struct SimdGroup {
    Lanes lanes[2];
    uint phase, arrived, meetings;
};

Fiber fibers[MAX_THREADS];
SimdGroup groups[GROUPS];
void* scheduler;
uint me, threads, at_barrier, group_number;
uint64_t ready[GROUPS];  // bit per lane
bool failed;
void* pointers[MAX_BUFFERS];
const Launch* launch;

void set_state(uint index, State state) {
    fibers[index].state = state;
    const uint64_t bit = uint64_t(1) << index % SIMD;
    ready[index / SIMD] = state == READY ? ready[index / SIMD] | bit : ready[index / SIMD] & ~bit;
}

void leave() {
    host_switch(&fibers[me].stack, scheduler);
}

[[noreturn]] void fiber_main() {
    launch->entry(pointers);
    set_state(me, DONE);
    leave();
    abort();
}

uint lanes_of(uint group) {
    return threads - group * SIMD < SIMD ? threads - group * SIMD : SIMD;
}

// The first ready thread from `from` on, around the end; `threads` if there is none.
uint next_ready(uint from) {
    for (uint i = 0; i < threads;) {
        const uint index = (from + i) % threads;
        const uint64_t lanes = ready[index / SIMD] >> index % SIMD;
        if (lanes & 1) {
            return index;
        }
        i += lanes ? uint(__builtin_ctzll(lanes)) : lanes_of(index / SIMD) - index % SIMD;
    }
    return threads;
}

uint last_ready() {
    for (uint group = (threads - 1) / SIMD + 1; group-- > 0;) {
        if (ready[group]) {
            return group * SIMD + 63 - uint(__builtin_clzll(ready[group]));
        }
    }
    return threads;
}

// Names the first thread that waits and one that does not wait with it.
void report_divergence() {
    uint first = 0;
    while (first < threads && fibers[first].state == DONE) {
        first++;
    }
    const Fiber& waits = fibers[first];
    const bool simd = waits.state == AT_SIMD;
    const uint begin = simd ? first / SIMD * SIMD : 0;
    const uint end = simd ? begin + lanes_of(first / SIMD) : threads;
    uint together = 0, apart = first;
    for (uint i = begin; i < end; i++) {
        const Fiber& f = fibers[i];
        if (f.state == waits.state && f.site == waits.site && f.flags == waits.flags) {
            together++;
        } else {
            apart = apart == first ? i : apart;
        }
    }
    char note[256];
    snprintf(note, sizeof(note), "%s reached by %u of %u threads; thread %u %s",
             simd ? "a SIMD function" : "a barrier", together, end - begin, apart,
             fibers[apart].state == DONE ? "has returned" : "waits elsewhere");
    me = first;
    report(DIVERGENCE, NO_MEMORY, 0, waits.site,
           fibers[apart].state == DONE ? 0 : fibers[apart].site,
           group_number * MAX_THREADS + apart, note);
    failed = true;
}

void run_group(std::mt19937_64& random) {
    memory_new_group();
    at_barrier = 0;
    memset(ready, 0, sizeof(ready));
    for (uint i = 0; i < threads; i++) {
        fibers[i].stack = fresh_stack(i, &fiber_main);
        fibers[i].site = fibers[i].flags = 0;
        set_state(i, READY);
    }
    for (uint g = 0; g < GROUPS; g++) {
        groups[g].phase = groups[g].arrived = groups[g].meetings = 0;
    }
    uint last = threads - 1;
    while (!failed) {
        uint next = threads;
        switch (launch->schedule) {
            case LOCKSTEP: next = next_ready((last + 1) % threads); break;
            case SERIAL: next = next_ready(0); break;
            case REVERSE: next = last_ready(); break;
            default: next = next_ready(uint(random() % threads));
        }
        if (next == threads) {
            break;
        }
        last = me = next;
        current = &fibers[me].thread;
        host_switch(&scheduler, fibers[me].stack);
    }
    for (uint i = 0; i < threads && !failed; i++) {
        if (fibers[i].state != DONE) {
            report_divergence();
        }
    }
}

// Threads of one group; those at the edge of the grid are fewer, as in dispatchThreads.
void place_threads(const uint (&at)[3], const uint (&counts)[3]) {
    uint size[3];
    for (uint d = 0; d < 3; d++) {
        const uint left = launch->grid[d] - at[d] * launch->group[d];
        size[d] = left < launch->group[d] ? left : launch->group[d];
    }
    threads = size[0] * size[1] * size[2];
    for (uint i = 0; i < threads; i++) {
        const uint3 in_group = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
        const uint3 group = {at[0], at[1], at[2]};
        const uint3 whole = {launch->group[0], launch->group[1], launch->group[2]};
        fibers[i].thread = {group * whole + in_group, in_group, group,
                            {counts[0], counts[1], counts[2]}, {size[0], size[1], size[2]},
                            i, i % SIMD, i / SIMD};
    }
}

void run_groups() {
    uint counts[3];
    for (uint d = 0; d < 3; d++) {
        counts[d] = (launch->grid[d] + launch->group[d] - 1) / launch->group[d];
    }
    const uint total = counts[0] * counts[1] * counts[2];
    std::mt19937_64 random(launch->seed);
    const uint first = launch->schedule == RANDOM ? uint(random() % total) : 0;
    for (uint i = 0; i < total && !failed; i++) {
        const uint n = launch->schedule == REVERSE ? total - 1 - i : (first + i) % total;
        const uint at[3] = {n % counts[0], n / counts[0] % counts[1], n / counts[0] / counts[1]};
        group_number = n;
        place_threads(at, counts);
        run_group(random);
    }
}

}  // namespace

uint thread_number() {
    return group_number * MAX_THREADS + me;
}

uint simd_meetings() {
    return groups[me / SIMD].meetings;
}

void abandon() {
    failed = true;
    leave();
    abort();
}

}  // namespace host

extern "C" {

void host_barrier(uint flags, uint site) {
    using namespace host;
    fibers[me].site = site;
    fibers[me].flags = flags;
    set_state(me, AT_BARRIER);
    if (++at_barrier == threads) {
        for (uint i = 0; i < threads; i++) {
            if (fibers[i].site != site || fibers[i].flags != flags) {
                report_divergence();
                leave();
            }
        }
        at_barrier = 0;
        memory_barrier(flags);
        for (uint i = 0; i < threads; i++) {
            set_state(i, READY);
        }
    }
    leave();
}

const host::Lanes* host_gather(uint64_t bits, uint site) {
    using namespace host;
    SimdGroup& group = groups[me / SIMD];
    const uint begin = me / SIMD * SIMD, lanes = lanes_of(me / SIMD);
    Lanes& mine = group.lanes[group.phase];
    mine.bits[me % SIMD] = bits;
    fibers[me].site = site;
    fibers[me].flags = 0;
    set_state(me, AT_SIMD);
    if (++group.arrived == lanes) {
        mine.count = lanes;
        for (uint i = begin; i < begin + lanes; i++) {
            if (fibers[i].site != site) {
                report_divergence();
                leave();
            }
        }
        group.arrived = 0;
        group.meetings++;
        group.phase ^= 1;
        for (uint i = begin; i < begin + lanes; i++) {
            set_state(i, READY);
        }
    }
    leave();
    return &mine;
}

uint host_run(const host::Launch* given, host::Event* events, uint capacity) {
    using namespace host;
    launch = given;
    numbers = given->numbers;
    failed = false;
    me = group_number = 0;
    start_events(events, capacity);
    memory_begin(*given, pointers);
    const uint control = _mm_getcsr();
    _mm_setcsr(numbers.flush ? control | 0x8040 : control);  // results and operands
    run_groups();
    _mm_setcsr(control);
    memory_end(!failed);
    return event_count() | (failed ? 1u << 31 : 0);
}
}
