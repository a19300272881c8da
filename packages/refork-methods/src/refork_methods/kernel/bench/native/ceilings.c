/* What one core can do at most: fused multiply-adds at the widest vectors, and a triad over three arrays.
   Prints flop/s of float and double, bytes/s of the long triad with ordinary stores, of the short one, and of
   the long one with stores past the caches, one line a repeat. Each array's bytes count once: an ordinary
   store that misses fetches its line before, which makes four streams of three. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#if defined __SSE2__
#include <immintrin.h>
#endif

#if defined __AVX512F__
enum { WIDTH = 64 };
#elif defined __AVX__
enum { WIDTH = 32 };
#else
enum { WIDTH = 16 };
#endif
enum { CHAINS = 12 };
typedef float floats __attribute__((vector_size(WIDTH)));
typedef double doubles __attribute__((vector_size(WIDTH)));

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define CHAIN(NAME, VECTOR)                                                      \
    static __attribute__((noinline)) VECTOR NAME(long turns, VECTOR by, VECTOR more) { \
        VECTOR a[CHAINS], sum = by - by;                                         \
        for (int i = 0; i < CHAINS; i++) a[i] = more * (float)i;                 \
        for (long t = 0; t < turns; t++)                                         \
            for (int i = 0; i < CHAINS; i++) a[i] = a[i] * by + more;            \
        for (int i = 0; i < CHAINS; i++) sum += a[i];                            \
        return sum;                                                              \
    }
CHAIN(float_chain, floats)
CHAIN(double_chain, doubles)

static __attribute__((noinline)) void triad(long n, float *restrict a, const float *restrict b,
                                            const float *restrict c, float s) {
    for (long i = 0; i < n; i++) a[i] = b[i] + s * c[i];
}

/* The same past the caches; arrays begin a line, and n is a whole number of vectors. */
static __attribute__((noinline)) void streaming(long n, float *restrict a, const float *restrict b,
                                                const float *restrict c, float s) {
#if defined __AVX512F__
    for (long i = 0; i < n; i += 16)
        _mm512_stream_ps(a + i, _mm512_loadu_ps(b + i) + s * _mm512_loadu_ps(c + i));
    _mm_sfence();
#elif defined __AVX__
    for (long i = 0; i < n; i += 8)
        _mm256_stream_ps(a + i, _mm256_loadu_ps(b + i) + s * _mm256_loadu_ps(c + i));
    _mm_sfence();
#elif defined __SSE2__
    for (long i = 0; i < n; i += 4) _mm_stream_ps(a + i, _mm_loadu_ps(b + i) + s * _mm_loadu_ps(c + i));
    _mm_sfence();
#else
    triad(n, a, b, c, s);
#endif
}

typedef void (*pass)(long n, float *restrict a, const float *restrict b, const float *restrict c, float s);

static double rate(pass run, long n, long passes, float *a, float *b, float *c) {
    double from = now();
    for (long p = 0; p < passes; p++) {
        run(n, a, b, c, (float)p);
        __asm__ volatile("" : : "r"(a), "r"(b), "r"(c) : "memory");
    }
    return 12.0 * (double)n * (double)passes / (now() - from);
}

int main(int count, char **told) {
    if (count != 4) return 2;
    long repeats = atol(told[1]), many = atol(told[2]), few = atol(told[3]), turns = 3000000;
    float *a = aligned_alloc(64, (size_t)many * 4), *b = aligned_alloc(64, (size_t)many * 4),
          *c = aligned_alloc(64, (size_t)many * 4);
    if (!a || !b || !c) return 3;
    for (long i = 0; i < many; i++) a[i] = b[i] = c[i] = (float)(i % 7);
    floats f = {0};
    doubles d = {0};
    volatile float kept;
    for (long r = 0; r < repeats; r++) {
        double t0 = now();
        floats x = float_chain(turns, f + 0.5f, f + 1.0f);
        double t1 = now();
        doubles y = double_chain(turns, d + 0.5, d + 1.0);
        double t2 = now(), work = 2.0 * CHAINS * WIDTH * (double)turns;
        kept = x[0] + (float)y[0];
        double far = rate(triad, many, 2, a, b, c), near = rate(triad, few, 100000000 / few, a, b, c),
               past = rate(streaming, many, 2, a, b, c);
        printf("%.6e %.6e %.6e %.6e %.6e\n", work / 4 / (t1 - t0), work / 8 / (t2 - t1), far, near, past);
    }
    (void)kept;
    return 0;
}
