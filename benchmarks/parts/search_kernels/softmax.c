// refork: entry=softmax rows=2048 n=1024 x=rows*n y=rows*n:out flops=5*rows*n bytes=8*rows*n rtol=1e-4
#include <math.h>

void softmax(int rows, int n, const float *x, float *y) {
    for (int r = 0; r < rows; r++) {
        float most = x[r * n];
        for (int j = 1; j < n; j++)
            if (x[r * n + j] > most)
                most = x[r * n + j];
        float sum = 0.0f;
        for (int j = 0; j < n; j++) {
            y[r * n + j] = expf(x[r * n + j] - most);
            sum += y[r * n + j];
        }
        for (int j = 0; j < n; j++)
            y[r * n + j] = y[r * n + j] / sum;
    }
}
