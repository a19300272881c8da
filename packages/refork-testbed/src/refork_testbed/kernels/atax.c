// refork: m=48 n=52 a=m*n x=n y=n:out t=m:out
void atax(int m, int n, const float *a, const float *x, float *y, float *t) {
    for (int j = 0; j < n; j++) y[j] = 0;
    for (int i = 0; i < m; i++) {
        t[i] = 0;
        for (int j = 0; j < n; j++) t[i] = t[i] + a[i * n + j] * x[j];
        for (int j = 0; j < n; j++) y[j] = y[j] + a[i * n + j] * t[i];
    }
}
