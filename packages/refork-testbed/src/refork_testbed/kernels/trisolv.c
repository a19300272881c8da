// refork: n=64 l=n*n b=n x=n:out
void trisolv(int n, const double *l, const double *b, double *x) {
    for (int i = 0; i < n; i++) {
        x[i] = b[i];
        for (int j = 0; j < i; j++) x[i] -= l[i * n + j] * x[j];
        x[i] = x[i] / (l[i * n + i] + 2.0 * n);
    }
}
