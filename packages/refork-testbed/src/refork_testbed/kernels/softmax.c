// refork: rows=20 n=64 x=rows*n y=rows*n:out
#include <math.h>
void softmax(int rows, int n, const float *x, float *y) {
    for (int r = 0; r < rows; r++) {
        float top = -3.0e38f, sum = 0;
        for (int i = 0; i < n; i++)
            if (x[r * n + i] > top) top = x[r * n + i];
        for (int i = 0; i < n; i++) {
            y[r * n + i] = expf(x[r * n + i] - top);
            sum += y[r * n + i];
        }
        for (int i = 0; i < n; i++) y[r * n + i] /= sum;
    }
}
