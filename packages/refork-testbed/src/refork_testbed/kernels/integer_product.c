// refork: n=24 a=n*n b=n*n c=n*n:out
#include <stdint.h>
void integer_product(int n, const int8_t *a, const int8_t *b, int32_t *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            int32_t s = 0;
            for (int k = 0; k < n; k++) s += (int32_t)a[i * n + k] * b[k * n + j];
            c[i * n + j] = s;
        }
}
