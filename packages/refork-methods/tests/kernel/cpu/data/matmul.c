#include <math.h>
void naive(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
void rows(int n, const float *a, const float *b, float *restrict c) {
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
}
void slow(int n, const float *x, float *y) {
    for (int i = 0; i < n; i++)
        y[i] = expf(x[i]) / (1 + sqrtf(x[i]));
}
