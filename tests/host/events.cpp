// What went wrong, once for each pair of places; and what clang's own checks report.

#include "runtime.h"

#include <stdio.h>
#include <string.h>

namespace host {
namespace {

Event* events;
uint capacity, used;

}  // namespace

void start_events(Event* out, uint size) {
    events = out;
    capacity = size;
    used = 0;
}

uint event_count() {
    return used;
}

void report(Kind kind, uint memory, int64_t element, uint site, uint other_site,
            uint other_thread, const char* note) {
    for (uint i = 0; i < used; i++) {
        Event& e = events[i];
        if (e.kind == kind && e.memory == memory && e.site == site &&
            e.other_site == other_site && strncmp(e.note, note, sizeof(e.note) - 1) == 0) {
            e.count++;
            return;
        }
    }
    if (used < capacity) {
        Event& e = events[used++];
        e = {kind, memory, element, site, thread_number(), other_site, other_thread, 1, {}};
        snprintf(e.note, sizeof(e.note), "%s", note);
    }
}

}  // namespace host

// Handlers of -fsanitize: each gets a record that begins with a place in the text. Beyond it the
// compiler promises nothing.
struct Place {
    const char* file;
    uint line, column;
};

#define HANDLER(NAME, WHAT)                                                              \
    extern "C" void __ubsan_handle_##NAME(const Place* at, ...) {                        \
        char note[256];                                                                  \
        snprintf(note, sizeof(note), "%s:%u: %s", at->file, at->line, WHAT);             \
        host::report(host::UNDEFINED, host::NO_MEMORY, 0, 0, 0, 0, note);                \
        host::abandon();                                                                 \
    }
HANDLER(out_of_bounds, "index outside an array")
HANDLER(add_overflow, "signed integer overflow")
HANDLER(sub_overflow, "signed integer overflow")
HANDLER(mul_overflow, "signed integer overflow")
HANDLER(negate_overflow, "signed integer overflow")
HANDLER(divrem_overflow, "signed integer overflow or division by zero")
HANDLER(shift_out_of_bounds, "shift by more than the width")
