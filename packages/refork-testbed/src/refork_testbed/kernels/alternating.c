// refork: n=24 steps=3 u=n*n:inout v=n*n:out p=n*n:out q=n*n:out
void alternating(int steps, int n, double *u, double *v, double *p, double *q) {
    for (int i = 0; i < n * n; i++) { v[i] = 0; p[i] = 0; q[i] = 0; }
    for (int t = 1; t <= steps; t++)
        for (int i = 1; i < n - 1; i++) {
            v[i] = 1.0;
            p[i * n] = 0.0;
            q[i * n] = v[i];
            for (int j = 1; j < n - 1; j++) {
                p[i * n + j] = 0.3 / (0.3 * p[i * n + j - 1] + 1.6);
                q[i * n + j] = (0.2 * u[j * n + i - 1] + 0.6 * u[j * n + i] + 0.2 * u[j * n + i + 1] +
                                0.3 * q[i * n + j - 1]) / (0.3 * p[i * n + j - 1] + 1.6);
            }
            v[(n - 1) * n + i] = 1.0;
            for (int j = n - 2; j >= 1; j--) v[j * n + i] = p[i * n + j] * v[(j + 1) * n + i] + q[i * n + j];
        }
}
