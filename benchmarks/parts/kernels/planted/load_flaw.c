// Planted: two loads and a store for every two vector operations.
// refork: entry=matmul n=160 a=n*n b=n*n c=n*n:out flops=2*n*n*n bytes=12*n*n rtol=1e-3
void matmul(int n, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++)
            c[i * n + j] = 0;
        for (int k = 0; k < n; k++)
            for (int j = 0; j < n; j++)
                c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
