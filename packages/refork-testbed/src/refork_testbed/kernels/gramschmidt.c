// refork: m=24 n=20 a=m*n:inout:positive r=n*n:inout q=m*n:inout rtol=1e-6 atol=1e-6
#include <math.h>
void gramschmidt(int m, int n, double *a, double *r, double *q) {
    int i, j, k;
    double norm;
    for (k = 0; k < n; k++) {
        if (k < m) a[k * n + k] += n;
        norm = 0.0;
        for (i = 0; i < m; i++) norm += a[i * n + k] * a[i * n + k];
        r[k * n + k] = sqrt(norm);
        for (i = 0; i < m; i++) q[i * n + k] = a[i * n + k] / r[k * n + k];
        for (j = k + 1; j < n; j++) {
            r[k * n + j] = 0.0;
            for (i = 0; i < m; i++) r[k * n + j] += q[i * n + k] * a[i * n + j];
            for (i = 0; i < m; i++) a[i * n + j] -= q[i * n + k] * r[k * n + j];
        }
    }
}
