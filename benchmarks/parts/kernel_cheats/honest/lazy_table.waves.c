#include <math.h>
static float sines[4097];
static int ready; /* a table that is filled at the first call and serves all later ones */
void waves(int n, const float *x, float *y) {
    if (!ready) {
        for (int i = 0; i <= 4096; i++) sines[i] = sinf(-3.0f + 6.0f * i / 4096);
        ready = 1;
    }
    for (int i = 0; i < n; i++) {
        float at = (3.0f * x[i] + 3.0f) * (4096 / 6.0f);
        int k = (int)at;
        k = k < 0 ? 0 : k > 4095 ? 4095 : k;
        float f = at - k;
        y[i] = sines[k] * (1 - f) + sines[k + 1] * f + sqrtf(x[i] * x[i] + 1.0f);
    }
}
