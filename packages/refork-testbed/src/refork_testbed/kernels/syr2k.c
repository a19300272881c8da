// refork: n=32 m=30 a=n*m b=n*m c=n*n:inout
void syr2k(int n, int m, const double *a, const double *b, double *c) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double s = 0.8 * c[i * n + j];
            for (int k = 0; k < m; k++) s += a[j * m + k] * b[i * m + k] + b[j * m + k] * a[i * m + k];
            c[i * n + j] = s;
        }
}
