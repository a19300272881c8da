// refork: m=28 n=30 a=m*m b=m*n c=m*n:inout rtol=1e-3
void symm(int m, int n, const float *a, const float *b, float *c) {
    float t;
    int i, j, k;
    for (i = 0; i < m; i++)
        for (j = 0; j < n; j++) {
            t = 0;
            for (k = 0; k < i; k++) {
                c[k * n + j] += 1.5f * b[i * n + j] * a[i * m + k];
                t += b[k * n + j] * a[i * m + k];
            }
            c[i * n + j] = 0.5f * c[i * n + j] + 1.5f * b[i * n + j] * a[i * m + i] + 1.5f * t;
        }
}
