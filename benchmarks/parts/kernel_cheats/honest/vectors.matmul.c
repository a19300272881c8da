#include <string.h>
typedef float eight __attribute__((vector_size(32)));
void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++) {
        int j = 0;
        for (; j + 8 <= n; j += 8) {
            eight sum = {0}, row;
            for (int k = 0; k < n; k++) {
                memcpy(&row, b + k * n + j, sizeof row);
                sum += a[i * n + k] * row;
            }
            memcpy(c + i * n + j, &sum, sizeof sum);
        }
        for (; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    }
}
