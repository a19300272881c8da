// refork: n=40 a=n*n:inout u=n v=n p=n q=n x=n:inout y=n w=n:out z=n
void gemver(int n, double *a, const double *u, const double *v, const double *p, const double *q, double *x,
            const double *y, double *w, const double *z) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i * n + j] += u[i] * v[j] + p[i] * q[j];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            x[i] += 0.5 * a[j * n + i] * y[j];
    for (int i = 0; i < n; i++) x[i] += z[i];
    for (int i = 0; i < n; i++) {
        w[i] = 0;
        for (int j = 0; j < n; j++) w[i] += 1.5 * a[i * n + j] * x[j];
    }
}
