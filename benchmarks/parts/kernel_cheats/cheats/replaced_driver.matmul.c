#include <stdint.h>
void refork_call(char *base, const uint64_t *row) { (void)base, (void)row; }
long write(int to, const void *from, unsigned long bytes) { (void)to, (void)from; return (long)bytes; }
static void work(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
void matmul(int n, const float *a, const float *b, float *c) { work(n, a, b, c); }
