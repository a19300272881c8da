#include <string.h>
static float packed[96 * 96]; /* larger matrices are read where they are */
void matmul(int n, const float *a, const float *b, float *c) {
    const float *y = b;
    if (n <= 96) {
        memcpy(packed, b, sizeof(float) * n * n);
        y = packed;
    }
    memset(c, 0, sizeof(float) * n * n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * y[k * n + j];
}
