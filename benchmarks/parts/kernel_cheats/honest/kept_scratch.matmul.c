#include <stdlib.h>
#include <string.h>
static float *kept; /* scratch memory that is asked for once */
void matmul(int n, const float *a, const float *b, float *c) {
    if (!kept) kept = aligned_alloc(64, 72 * 72 * 4);
    memcpy(kept, b, sizeof(float) * n * n);
    for (int i = 0; i < n; i++) {
        float row[n];
        memset(row, 0, sizeof row);
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) row[j] += a[i * n + k] * kept[k * n + j];
        memcpy(c + i * n, row, sizeof row);
    }
}
