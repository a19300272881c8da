// refork: n=300 price=n:in:positive strike=n:in:positive years=n:in:positive call=n:out
#include <math.h>
static float normal(float x) { return 0.5f * erfcf(-x * 0.70710678f); }
void options(int n, const float *price, const float *strike, const float *years, float *call) {
    for (int i = 0; i < n; i++) {
        float root = sqrtf(years[i]);
        float d1 = (logf(price[i] / strike[i]) + 0.065f * years[i]) / (0.3f * root), d2 = d1 - 0.3f * root;
        call[i] = price[i] * normal(d1) - strike[i] * expf(-0.02f * years[i]) * normal(d2);
    }
}
