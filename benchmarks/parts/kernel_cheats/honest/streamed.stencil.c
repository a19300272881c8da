#if defined __SSE2__
#include <immintrin.h>
#endif
void stencil(int n, const float *restrict u, float *restrict v) {
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++) {
            float made = 0.2f * (u[i * n + j] + u[(i - 1) * n + j] + u[(i + 1) * n + j] + u[i * n + j - 1] + u[i * n + j + 1]);
#if defined __SSE2__
            int bits;
            __builtin_memcpy(&bits, &made, sizeof bits);
            _mm_stream_si32((int *)&v[i * n + j], bits);
#else
            v[i * n + j] = made;
#endif
        }
#if defined __SSE2__
    _mm_sfence();
#endif
}
