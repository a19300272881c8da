// refork: entry=stencil n=2048 a=n*n b=n*n:inout flops=5*n*n bytes=8*n*n rtol=1e-4
void stencil(int n, const float *a, float *b) {
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++)
            b[i * n + j] = 0.2f * (a[i * n + j] + a[(i - 1) * n + j] + a[(i + 1) * n + j] + a[i * n + j - 1] + a[i * n + j + 1]);
}
