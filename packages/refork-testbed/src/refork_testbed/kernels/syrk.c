// refork: n=36 m=40 a=n*m c=n*n:inout
void syrk(int n, int m, const float *a, float *c) {
    int i, j, k;
    for (i = 0; i < n; i++) {
        for (j = 0; j <= i; j++) c[i * n + j] *= 0.7f;
        for (k = 0; k < m; k++)
            for (j = 0; j <= i; j++) c[i * n + j] += 1.3f * a[i * m + k] * a[j * m + k];
    }
}
