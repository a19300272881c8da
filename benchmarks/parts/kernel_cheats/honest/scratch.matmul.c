#include <stdlib.h>
void matmul(int n, const float *a, const float *b, float *c) {
    float *t = malloc(sizeof *t * n * n);
    if (!t) abort();
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) t[j * n + i] = b[i * n + j];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * t[j * n + k];
            c[i * n + j] = sum;
        }
    free(t);
}
