// Buffers and threadgroup memory: bounds, races, reads of what nothing wrote.
// Every buffer has 4 GiB of inaccessible address space on either side.

#include "runtime.h"

#include <dlfcn.h>
#include <initializer_list>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

namespace host {
namespace {

constexpr uintptr_t ZONE_BITS = 33, ZONE = uintptr_t(1) << ZONE_BITS, PAGE = 4096;
constexpr uint ZONES = MAX_BUFFERS + MAX_SLOTS;

struct Access {
    uint site, thread, serial, meetings;  // serial 0: never
};

struct Cell {
    Access write, read, other;  // the last writer and two readers of different threads
};

struct Zone {
    char* begin;
    uintptr_t bytes, cell;
    Cell* cells;  // none for inputs
    char* pages;
    uintptr_t page_bytes;
};

char* arena;
Zone zones[ZONES];
const Launch* launch;
const void* image;
// Barriers are numbered through the run. An access before number ordered[s] of space s, made
// by another thread of the group, happened before now.
uint serial, ordered[2];
enum Space { DEVICE, THREADGROUP };

// The zone ends with its last page, or as near as the alignment allows; or begins at `offset`.
void map_zone(uint index, uintptr_t bytes, uintptr_t cell, uintptr_t alignment, bool shadow,
              int64_t offset = -1) {
    Zone& zone = zones[index];
    zone.pages = arena + index * ZONE + ZONE / 2;
    const uintptr_t before = offset < 0 ? 0 : uintptr_t(offset);
    zone.page_bytes = (before + bytes + PAGE - 1) / PAGE * PAGE + PAGE * (bytes == 0);
    if (mprotect(zone.pages, zone.page_bytes, PROT_READ | PROT_WRITE) != 0) {
        abort();
    }
    const uintptr_t room = (zone.page_bytes - bytes) / alignment * alignment;
    zone.begin = zone.pages + (offset < 0 ? room : before);
    zone.bytes = bytes;
    zone.cell = cell;
    zone.cells = shadow ? static_cast<Cell*>(calloc(bytes / cell + 1, sizeof(Cell))) : nullptr;
    memset(zone.begin, 0xff, bytes);
}

void unmap_zone(Zone& zone) {
    if (zone.pages != nullptr) {
        mmap(zone.pages, zone.page_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
        free(zone.cells);
        zone = Zone();
    }
}

bool happened_before(const Access& past, uint space) {
    const uint now = thread_number();
    return past.serial == 0 || past.thread == now ||
           (past.thread / MAX_THREADS == now / MAX_THREADS && past.serial < ordered[space]);
}

void check_order(const Access& past, uint index, uintptr_t element, uint space, uint site) {
    if (!happened_before(past, space)) {
        const bool same_group = past.thread / MAX_THREADS == thread_number() / MAX_THREADS;
        const bool barrier = same_group && past.serial < serial;
        const bool met = past.thread / SIMD == thread_number() / SIMD &&
                         past.meetings < simd_meetings();
        report(barrier ? RACE_ACROSS_BARRIER : RACE, index, int64_t(element), site, past.site,
               past.thread, met ? "only a SIMD function lies between" : "");
    }
}

void touch(uint index, uintptr_t element, bool write, uint site) {
    Cell& cell = zones[index].cells[element];
    const uint space = index < MAX_BUFFERS ? DEVICE : THREADGROUP;
    const Access now = {site, thread_number(), serial, simd_meetings()};
    check_order(cell.write, index, element, space, site);
    if (write) {
        check_order(cell.read, index, element, space, site);
        check_order(cell.other, index, element, space, site);
        cell.write = now;
        return;
    }
    if (cell.write.serial == 0) {
        report(READ_OF_UNWRITTEN, index, int64_t(element), site);
    }
    if (happened_before(cell.read, space)) {
        cell.read = now;
    } else if (happened_before(cell.other, space)) {
        cell.other = now;
    }
}

void access(char* at, uintptr_t bytes, uintptr_t alignment, bool write, uint site) {
    const uintptr_t from_arena = uintptr_t(at) - uintptr_t(arena);
    const uint index = from_arena >> ZONE_BITS < ZONES ? uint(from_arena >> ZONE_BITS) : NO_MEMORY;
    if (index == NO_MEMORY) {
        // Constants of the program text lie in the kernel's own image.
        Dl_info found;
        if (write || dladdr(at, &found) == 0 || found.dli_fbase != image) {
            report(OUT_OF_BOUNDS, NO_MEMORY, 0, site);
            abandon();
        }
        return;
    }
    const Zone& zone = zones[index];
    const intptr_t offset = at - zone.begin;
    if (zone.begin == nullptr || offset < 0 || uintptr_t(offset) + bytes > zone.bytes) {
        const intptr_t cell = intptr_t(zone.cell == 0 ? 1 : zone.cell);
        report(OUT_OF_BOUNDS, index, (offset - (offset < 0 ? cell - 1 : 0)) / cell, site);
        abandon();
    }
    const uintptr_t first = uintptr_t(offset) / zone.cell;
    if (uintptr_t(at) % alignment != 0) {
        report(MISALIGNED, index, int64_t(first), site);
        abandon();
    }
    const uintptr_t last = (uintptr_t(offset) + bytes - 1) / zone.cell;
    if (zone.cells == nullptr) {
        if (write) {
            report(WRITE_TO_INPUT, index, int64_t(first), site);
        }
        return;
    }
    for (uintptr_t element = first; element <= last; element++) {
        touch(index, element, write, site);
    }
}

}  // namespace

void memory_begin(const Launch& given, void** pointers) {
    launch = &given;
    if (arena == nullptr) {
        void* got = mmap(nullptr, ZONES * ZONE, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (got == MAP_FAILED) {
            abort();
        }
        arena = static_cast<char*>(got);
    }
    Dl_info found;
    image = dladdr(reinterpret_cast<void*>(given.entry), &found) ? found.dli_fbase : nullptr;
    serial = ordered[DEVICE] = ordered[THREADGROUP] = 1;
    for (uint i = 0; i < given.count; i++) {
        const Buffer& b = given.buffers[i];
        map_zone(i, b.bytes, b.cell, b.output ? 16 : b.cell, b.output, b.offset);
        if (!b.output) {
            memcpy(zones[i].begin, b.data, b.bytes);
        }
        pointers[i] = zones[i].begin;
    }
}

void memory_new_group() {
    for (uint i = MAX_BUFFERS; i < ZONES; i++) {
        Zone& zone = zones[i];
        if (zone.begin != nullptr) {
            memset(zone.begin, 0xff, zone.bytes);
            memset(zone.cells, 0, (zone.bytes / zone.cell + 1) * sizeof(Cell));
        }
    }
    serial++;
}

void memory_barrier(uint flags) {
    serial++;
    for (uint space : {DEVICE, THREADGROUP}) {
        if (flags & (1u << space)) {
            ordered[space] = serial;
        }
    }
}

void memory_end(bool complete) {
    for (uint i = 0; i < launch->count; i++) {
        const Buffer& b = launch->buffers[i];
        if (!b.output) {
            continue;
        }
        memcpy(b.data, zones[i].begin, b.bytes);
        for (uintptr_t element = 0; complete && element < b.bytes / b.cell; element++) {
            if (zones[i].cells[element].write.serial == 0) {
                report(UNWRITTEN_OUTPUT, i, int64_t(element), 0);
            }
        }
    }
    for (Zone& zone : zones) {
        unmap_zone(zone);
    }
}

}  // namespace host

extern "C" {

void* host_slot(int index, size_t bytes, size_t cell) {
    const uint zone = host::MAX_BUFFERS + uint(index);
    if (host::zones[zone].begin == nullptr) {
        host::map_zone(zone, bytes, cell, cell, true);
    }
    return host::zones[zone].begin;
}

void host_load(char* at, uint bytes, uint alignment, uint site) {
    host::access(at, bytes, alignment, false, site);
}

void host_store(char* at, uint bytes, uint alignment, uint site) {
    host::access(at, bytes, alignment, true, site);
}

void host_block(uint block) {
    host::launch->blocks[block] = 1;
}
}
