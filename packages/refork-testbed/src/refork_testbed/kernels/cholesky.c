// refork: n=32 a=n*n:inout
#include <math.h>
void cholesky(int n, double *a) {
    int i, j, k;
    for (i = 0; i < n; i++) a[i * n + i] += 2.0 * n;
    for (i = 0; i < n; i++) {
        for (j = 0; j < i; j++) {
            for (k = 0; k < j; k++) a[i * n + j] -= a[i * n + k] * a[j * n + k];
            a[i * n + j] /= a[j * n + j];
        }
        for (k = 0; k < i; k++) a[i * n + i] -= a[i * n + k] * a[i * n + k];
        a[i * n + i] = sqrt(a[i * n + i]);
    }
}
