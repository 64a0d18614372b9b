// Exponentials and logarithms, as exact as libm or as inexact as Metal allows: tables 8.1 and 8.2
// (accuracy without and with fast math) of the Metal Shading Language Specification, version 4.

#include "runtime.h"

#include <math.h>
#include <string.h>

namespace host {
namespace {

double exact(Function function, double x) {
    switch (function) {
        case EXP: return exp(x);
        case EXP2: return exp2(x);
        case LOG: return log(x);
        default: return log2(x);
    }
}

bool is_log(Function function) {
    return function == LOG || function == LOG2;
}

// The largest error, as a number. Half a unit of it is left to the last rounding.
double bound(Function function, bool fast, double x, double y) {
    const double ulp = ldexp(1.0, (y == 0 ? -126 : fmax(ilogb(y), -126)) - 23);
    if (!fast) {
        return 3.5 * ulp;
    }
    if (!is_log(function)) {
        return (2.5 + floor(fabs(2 * x))) * ulp;
    }
    if (x >= 0.5 && x <= 2) {
        return ldexp(1.0, function == LOG ? -21 : -22);
    }
    return (function == LOG ? 2.5 : 1.5) * ulp;
}

// In [-1, 1], the same for the same argument, as on a real machine. The ends come often.
double noise(Function function, float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint64_t h = (uint64_t(numbers.seed) << 34 | uint64_t(function) << 32 | bits) + 1;
    for (int i = 0; i < 3; i++) {
        h = (h ^ h >> 31) * 0x9e3779b97f4a7c15u;
    }
    return fmin(1.0, fmax(-1.0, double(int64_t(h)) * 0x1p-62));
}

}  // namespace
}  // namespace host

float host_math(host::Function function, bool fast, float x) {
    using namespace host;
    if (numbers.fast == POISON && fast) {
        if (isnan(x)) {
            return 12345.0f;
        }
        const bool denormal = x != 0 && fabsf(x) < 0x1p-126f;
        if (isinf(x) || denormal || (is_log(function) && x <= 0)) {
            return NAN;
        }
    }
    const double y = exact(function, x);
    // What underflows is 0, although the bound grows without end on the way there.
    const bool underflows = !is_log(function) && y < 0x1p-149;
    if (numbers.fast != PERTURB || !isfinite(x) || !isfinite(y) || underflows) {
        return float(y);
    }
    const double off = y + noise(function, x) * bound(function, fast, x, y);
    return float(is_log(function) || off > 0 ? off : 0);
}

// gcc 12's libgcc lacks this one.
extern "C" __bf16 __truncsfbf2(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    const uint32_t rounded = isnan(x) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1);
    const uint16_t top = uint16_t(rounded >> 16);
    __bf16 result;
    memcpy(&result, &top, sizeof(result));
    return result;
}
