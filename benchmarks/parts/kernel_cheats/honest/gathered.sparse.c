#if defined __AVX2__
#include <immintrin.h>
#endif
void sparse(int n, int m, const int *restrict from, const int *restrict column, const float *restrict value, const float *restrict x, float *restrict y) {
    (void)m;
    for (int i = 0; i < n; i++) {
        int k = from[i];
        float sum = 0;
#if defined __AVX2__
        __m256 sums = _mm256_setzero_ps();
        for (; k + 8 <= from[i + 1]; k += 8)
            sums += _mm256_loadu_ps(value + k) * _mm256_i32gather_ps(x, _mm256_loadu_si256((const __m256i *)(column + k)), 4);
        for (int lane = 0; lane < 8; lane++) sum += sums[lane];
#endif
        for (; k < from[i + 1]; k++) sum += value[k] * x[column[k]];
        y[i] = sum;
    }
}
