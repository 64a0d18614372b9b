// In place of what metal.h says about vectors: as on CUDA, where a load of 16 bytes needs an address
// that 16 divides, so that the texts go round the ends of a row. The runtime checks the alignment.

template <typename T>
struct Packed {
    typedef T type __attribute__((ext_vector_type(16 / sizeof(T))));
};

template <typename T, typename P>
FUNCTION int lead_of(P from) {
    return int((16 - ulong(from) % 16) % 16 / sizeof(T));
}

template <typename T, typename V>
FUNCTION Vector<16 / sizeof(T)> unpack(V packed) {
    Vector<16 / sizeof(T)> x;
    for (int j = 0; j < int(16 / sizeof(T)); j++) {
        x.at[j] = float(packed[j]);
    }
    return x;
}

template <typename T>
FUNCTION Vector<16 / sizeof(T)> load_aligned(const device T* from) {
    return unpack<T>(*(const device typename Packed<T>::type*)from);
}

template <typename T>
FUNCTION Vector<16 / sizeof(T)> load_aligned(const constant T* from) {
    return unpack<T>(*(const constant typename Packed<T>::type*)from);
}

template <typename T>
FUNCTION void store_aligned(device T* to, Vector<16 / sizeof(T)> x) {
    typename Packed<T>::type packed;
    for (int j = 0; j < int(16 / sizeof(T)); j++) {
        packed[j] = static_cast<T>(x.at[j]);
    }
    *(device typename Packed<T>::type*)to = packed;
}

#define misaligned lead_of
#define load_vector load_aligned
#define store_vector store_aligned
