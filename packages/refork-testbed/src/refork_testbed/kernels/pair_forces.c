// refork: n=48 x=n y=n z=n fx=n:out fy=n:out fz=n:out
#include <math.h>
void pair_forces(int n, const float *x, const float *y, const float *z, float *fx, float *fy, float *fz) {
    for (int i = 0; i < n; i++) {
        float ax = 0, ay = 0, az = 0;
        for (int j = 0; j < n; j++) {
            float dx = x[j] - x[i], dy = y[j] - y[i], dz = z[j] - z[i];
            float r = dx * dx + dy * dy + dz * dz + 0.01f;
            float s = 1.0f / (r * sqrtf(r));
            ax += dx * s;
            ay += dy * s;
            az += dz * s;
        }
        fx[i] = ax;
        fy[i] = ay;
        fz[i] = az;
    }
}
