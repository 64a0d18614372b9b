// The CUDA dialect: the same names as metal.h, and the Metal keywords that the texts use.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define FUNCTION __device__ __forceinline__
#define SHARED float*
#define threadgroup __shared__
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)

#define thread_index_in_threadgroup threadIdx.x
#define threads_per_threadgroup blockDim
#define threadgroup_position_in_grid blockIdx
#define thread_index_in_simdgroup (threadIdx.x & 31)
#define simdgroup_index_in_threadgroup (threadIdx.x >> 5)

using uint = unsigned int;
using ushort = unsigned short;

enum class mem_flags { mem_threadgroup };

FUNCTION void threadgroup_barrier(mem_flags) {
    __syncthreads();
}

FUNCTION float simd_shuffle_xor(float x, ushort mask) {
    return __shfl_xor_sync(0xffffffff, x, mask);
}

FUNCTION float simd_max(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, step));
    }
    return x;
}

FUNCTION float fast_exp2(float z) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(z));
    return e;
}

FUNCTION float fast_log2(float x) {
    return __log2f(x);
}

FUNCTION float precise_exp2(float z) {
    return exp2f(z);
}

// Exactly 0 at 1.
FUNCTION float precise_log2(float x) {
    return log2f(x);
}

// Vector loads need an address that 16 divides: the number of entries before the next one.
template <typename T, typename P>
FUNCTION int misaligned(P from) {
    const unsigned bytes = reinterpret_cast<unsigned long long>(from) & 15;
    return ((16 - bytes) & 15) / sizeof(T);
}

template <int N>
struct Vector;

template <typename T>
struct alignas(16) Packed {
    T at[16 / sizeof(T)];
};

template <typename T, typename P>
FUNCTION Vector<16 / sizeof(T)> load_vector(P from) {
    const Packed<T> packed = *reinterpret_cast<const Packed<T>*>(from);
    Vector<16 / sizeof(T)> x;
#pragma unroll
    for (int j = 0; j < int(16 / sizeof(T)); j++) {
        x.at[j] = static_cast<float>(packed.at[j]);
    }
    return x;
}

template <typename T, typename P>
FUNCTION void store_vector(P to, Vector<16 / sizeof(T)> x) {
    Packed<T> packed;
#pragma unroll
    for (int j = 0; j < int(16 / sizeof(T)); j++) {
        packed.at[j] = static_cast<T>(x.at[j]);
    }
    *reinterpret_cast<Packed<T>*>(to) = packed;
}
