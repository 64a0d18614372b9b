// The Metal dialect: what the kernel texts take for granted beyond the language itself.

#define FUNCTION inline
#define SHARED threadgroup float*

// 2 ** z for finite z <= 0, to the 3 + 2 |z| units in the last place that Metal promises; below
// -126 it is 0 or denormal.
FUNCTION float fast_exp2(float z) {
    return metal::fast::exp2(z);
}

// log2(x) for 0.5 <= x <= 1, to 2 ** -22 absolute, also at 1.
FUNCTION float fast_log2(float x) {
    return metal::fast::log2(x);
}

FUNCTION float precise_exp2(float z) {
    return metal::precise::exp2(z);
}

// Exactly 0 at 1.
FUNCTION float precise_log2(float x) {
    return x == 1.0f ? 0.0f : metal::precise::log2(x);
}

// Vector loads need no more than the alignment of an element here.
template <typename T, typename P>
FUNCTION int misaligned(P) {
    return 0;
}

template <int N>
struct Vector;

template <typename T, typename P>
FUNCTION Vector<16 / sizeof(T)> load_vector(P from) {
    Vector<16 / sizeof(T)> x;
    for (int j = 0; j < int(16 / sizeof(T)); j++) {
        x.at[j] = float(from[j]);
    }
    return x;
}

template <typename T, typename P>
FUNCTION void store_vector(P to, Vector<16 / sizeof(T)> x) {
    for (int j = 0; j < int(16 / sizeof(T)); j++) {
        to[j] = static_cast<T>(x.at[j]);
    }
}
