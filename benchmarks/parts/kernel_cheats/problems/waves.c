#include <math.h>
// refork: n=4000 x=n y=n:out rtol=1e-3
void waves(int n, const float *x, float *y) {
    for (int i = 0; i < n; i++) y[i] = sinf(3.0f * x[i]) + sqrtf(x[i] * x[i] + 1.0f);
}
