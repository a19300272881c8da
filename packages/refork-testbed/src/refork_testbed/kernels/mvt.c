// refork: n=56 a=n*n y=n z=n u=n:inout v=n:inout
void mvt(int n, const float *a, const float *y, const float *z, float *u, float *v) {
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            u[i] += a[i * n + j] * y[j];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            v[i] += a[j * n + i] * z[j];
}
