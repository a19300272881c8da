// refork: n=24 a=n*n b=n*n c=n*n t=n*n:out d=n*n:out flops=4*n*n*n bytes=4*5*n*n
void two_products(int n, const float *a, const float *b, const float *c, float *t, float *d) {
    int i, j, k;
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) {
            t[i * n + j] = 0.0f;
            for (k = 0; k < n; ++k)
                t[i * n + j] += a[i * n + k] * b[k * n + j];
        }
    for (i = 0; i < n; i++)
        for (j = 0; j < n; j++) {
            d[i * n + j] = 0.0f;
            for (k = 0; k < n; ++k)
                d[i * n + j] += t[i * n + k] * c[k * n + j];
        }
}
