#include <stdlib.h>
#include <string.h>
static float *kept; /* scratch memory that is asked for once */
void matmul(int n, const float *a, const float *b, float *c) {
    static int room;
    if (n > room) {
        free(kept);
        kept = malloc(sizeof(float) * n * n);
        room = n;
    }
    memcpy(kept, b, sizeof(float) * n * n);
    for (int i = 0; i < n; i++) {
        float row[n + 1];
        memset(row, 0, sizeof(float) * n);
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++) row[j] += a[i * n + k] * kept[k * n + j];
        memcpy(c + i * n, row, sizeof(float) * n);
    }
}
