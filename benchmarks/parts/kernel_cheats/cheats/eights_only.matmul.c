/* right where n is a multiple of 8 */
#include <string.h>
typedef float eight __attribute__((vector_size(32)));
void matmul(int n, const float *a, const float *b, float *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j += 8) {
            eight sum = {0}, row;
            for (int k = 0; k < n; k++) {
                memcpy(&row, b + k * n + j, sizeof row);
                sum += a[i * n + k] * row;
            }
            memcpy(c + i * n + j, &sum, sizeof sum);
        }
}
