// refork: n=60 a=n*n b=n*n x=n t=n:out y=n:out alpha=:scalar beta=:scalar
void gesummv(int n, float alpha, float beta, const float *a, const float *b, const float *x, float *t, float *y) {
    for (int i = 0; i < n; i++) {
        t[i] = 0;
        y[i] = 0;
        for (int j = 0; j < n; j++) {
            t[i] += a[i * n + j] * x[j];
            y[i] += b[i * n + j] * x[j];
        }
        y[i] = alpha * t[i] + beta * y[i];
    }
}
