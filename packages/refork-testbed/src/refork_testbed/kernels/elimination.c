// refork: n=28 a=n*n:inout b=n:inout m=n*n:out
void elimination(int n, double *a, double *b, double *m) {
    for (int i = 0; i < n * n; i++) m[i] = 0;
    for (int i = 0; i < n; i++) a[i * n + i] += 2.0 * n;
    for (int t = 0; t < n - 1; t++) {
        for (int i = t + 1; i < n; i++) m[i * n + t] = a[i * n + t] / a[t * n + t];
        for (int i = t + 1; i < n; i++) {
            for (int j = t; j < n; j++) a[i * n + j] -= m[i * n + t] * a[t * n + j];
            b[i] -= m[i * n + t] * b[t];
        }
    }
}
