// The Metal dialect in C++14 for clang. What is not here does not compile.

#pragma once

#include "host.h"

#define device __attribute__((address_space(1)))
#define constant __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define double metal_has_no_double
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
// Inlined, so that its place is the caller's.
#define TOGETHER __attribute__((convergent, always_inline)) inline

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned long ulong;
typedef _Float16 half;
typedef __bf16 bfloat;
typedef half float16_t;
typedef bfloat bfloat16_t;

#define VECTORS(T)                                      \
    typedef T T##2 __attribute__((ext_vector_type(2))); \
    typedef T T##4 __attribute__((ext_vector_type(4)));
VECTORS(float)
VECTORS(half)
VECTORS(ushort)
VECTORS(uint)
VECTORS(int)
#undef VECTORS

namespace metal {

template <typename T, int N>
using vec = T __attribute__((ext_vector_type(N)));

template <typename T>
struct is_real {
    static constexpr bool value = __is_same(T, float) || __is_same(T, half) || __is_same(T, bfloat);
};

template <bool B, typename T>
struct only {};
template <typename T>
struct only<true, T> {
    typedef T type;
};
template <typename T>
using number = typename only<is_real<T>::value || __is_integral(T), T>::type;

template <typename To, typename From>
inline To as_type(From x) {
    return __builtin_bit_cast(To, x);
}

#define CLASSIFY(T)                                                              \
    inline bool isnan(T x) { return x != x; }                                    \
    inline bool isinf(T x) { return !isnan(x) && isnan(x - x); }                 \
    inline bool isfinite(T x) { return !isnan(x - x); }                          \
    inline T fma(T x, T y, T z) { return (T)__builtin_fmaf(x, y, z); }           \
    inline T abs(T x) { return (T)__builtin_fabsf(x); }                          \
    inline T fabs(T x) { return (T)__builtin_fabsf(x); }
CLASSIFY(float)
CLASSIFY(half)
CLASSIFY(bfloat)
#undef CLASSIFY
inline int abs(int x) { return x < 0 ? -x : x; }

// Metal promises only for fmax and fmin that nan loses: POISON takes its words about max literally.
template <typename T>
inline number<T> max(T x, T y) {
    return x < y || (x != x && host::numbers.fast != host::POISON) ? y : x;
}
template <typename T>
inline number<T> min(T x, T y) {
    return y < x || (x != x && host::numbers.fast != host::POISON) ? y : x;
}
template <typename T>
inline T select(T if_false, T if_true, bool condition) {
    return condition ? if_true : if_false;
}

#define FUNCTIONS(FAST)                                                            \
    inline float exp(float x) { return host_math(host::EXP, FAST, x); }            \
    inline float exp2(float x) { return host_math(host::EXP2, FAST, x); }          \
    inline float log(float x) { return host_math(host::LOG, FAST, x); }            \
    inline float log2(float x) { return host_math(host::LOG2, FAST, x); }
namespace fast {
FUNCTIONS(true)
}
namespace precise {
FUNCTIONS(false)
}
FUNCTIONS(false)
#undef FUNCTIONS

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }

TOGETHER void threadgroup_barrier(mem_flags flags) { host_barrier(uint(flags), 0); }

template <typename T>
struct Gathered {
    const host::Lanes* lanes;
    TOGETHER explicit Gathered(T x) {
        uint64_t bits = 0;
        __builtin_memcpy(&bits, &x, sizeof(T));
        lanes = host_gather(bits, 0);
    }
    // A lane that does not exist gives what nothing promises: all bits set.
    T operator[](uint lane) const {
        const uint64_t bits = lane < lanes->count ? lanes->bits[lane] : ~uint64_t(0);
        T x;
        __builtin_memcpy(&x, &bits, sizeof(T));
        return x;
    }
};

template <typename T>
TOGETHER number<T> simd_sum(T mine) {
    const Gathered<T> x(mine);
    const uint n = x.lanes->count;
    T part[32];
    for (uint i = 0; i < 32; i++) {
        const uint from = host::numbers.sum_order == host::DOWN ? n - 1 - i : i;
        part[i] = i < n ? x[from] : T(0);
    }
    if (host::numbers.sum_order == host::TREE) {
        for (uint step = 16; step > 0; step /= 2) {
            for (uint i = 0; i < step; i++) {
                part[i] = T(part[i] + part[i + step]);
            }
        }
        return part[0];
    }
    for (uint i = 1; i < n; i++) {
        part[0] = T(part[0] + part[i]);
    }
    return part[0];
}

template <typename T>
TOGETHER number<T> simd_max(T mine) {
    const Gathered<T> x(mine);
    T most = x[0];
    for (uint i = 1; i < x.lanes->count; i++) {
        most = max(most, x[i]);
    }
    return most;
}
template <typename T>
TOGETHER number<T> simd_min(T mine) {
    const Gathered<T> x(mine);
    T least = x[0];
    for (uint i = 1; i < x.lanes->count; i++) {
        least = min(least, x[i]);
    }
    return least;
}

template <typename T>
TOGETHER number<T> simd_shuffle(T mine, ushort lane) {
    return Gathered<T>(mine)[lane];
}
template <typename T>
TOGETHER number<T> simd_shuffle_xor(T mine, ushort mask) {
    return Gathered<T>(mine)[host::current->thread_index_in_simdgroup ^ mask];
}
template <typename T>
TOGETHER number<T> simd_shuffle_down(T mine, ushort delta) {
    return Gathered<T>(mine)[host::current->thread_index_in_simdgroup + delta];
}
template <typename T>
TOGETHER number<T> simd_shuffle_up(T mine, ushort delta) {
    return Gathered<T>(mine)[host::current->thread_index_in_simdgroup - delta];
}
template <typename T>
TOGETHER number<T> simd_broadcast(T mine, ushort lane) {
    return Gathered<T>(mine)[lane];
}

template <typename T>
struct numeric_limits;
#define LIMITS(T, LOWEST, MAX)                          \
    template <>                                         \
    struct numeric_limits<T> {                          \
        static constexpr T lowest() { return LOWEST; }  \
        static constexpr T max() { return MAX; }        \
    };
LIMITS(int, -2147483647 - 1, 2147483647)
LIMITS(uint, 0u, 4294967295u)
#undef LIMITS
#define LIMITS(T, MAX, MIN, EPSILON)                                   \
    template <>                                                        \
    struct numeric_limits<T> {                                         \
        static constexpr T lowest() { return T(-MAX); }                \
        static constexpr T max() { return T(MAX); }                    \
        static constexpr T min() { return T(MIN); }                    \
        static constexpr T epsilon() { return T(EPSILON); }            \
        static constexpr T infinity() { return T(INFINITY); }          \
        static constexpr T quiet_NaN() { return T(NAN); }              \
    };
LIMITS(float, 0x1.fffffep127f, 0x1p-126f, 0x1p-23f)
LIMITS(half, 65504.0f, 0x1p-14f, 0x1p-10f)
LIMITS(bfloat, 0x1.fep127f, 0x1p-126f, 0x1p-7f)
#undef LIMITS

}  // namespace metal

using namespace metal;
