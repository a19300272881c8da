// refork: m=32 n=36 a=m*m b=m*n:inout
void trmm(int m, int n, const float *a, float *b) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            for (int k = i + 1; k < m; k++)
                b[i * n + j] += a[k * m + i] * b[k * n + j];
            b[i * n + j] = 1.2f * b[i * n + j];
        }
}
