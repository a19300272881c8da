// refork: n=400 lat=n lng=n out=n:out x=:scalar y=:scalar
#include <math.h>
void distances(int n, const float *lat, const float *lng, float x, float y, float *out) {
    for (int i = 0; i < n; i++) {
        float dx = lat[i] - x, dy = lng[i] - y;
        out[i] = sqrtf(dx * dx + dy * dy);
    }
}
