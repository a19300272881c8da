// refork: rows=20 n=64 x=rows*n g=n b=n y=rows*n:out
#include <math.h>
void layer_norm(int rows, int n, const float *x, const float *g, const float *b, float *y) {
    for (int r = 0; r < rows; r++) {
        float mean = 0, var = 0;
        for (int i = 0; i < n; i++) mean += x[r * n + i];
        mean /= n;
        for (int i = 0; i < n; i++) var += (x[r * n + i] - mean) * (x[r * n + i] - mean);
        float scale = 1.0f / sqrtf(var / n + 1e-5f);
        for (int i = 0; i < n; i++) y[r * n + i] = (x[r * n + i] - mean) * scale * g[i] + b[i];
    }
}
