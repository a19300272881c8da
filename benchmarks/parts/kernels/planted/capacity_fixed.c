// Blocked: 16 rows of b, 16 KiB, stay in the cache for all rows of a.
// refork: entry=matmul n=256 a=n*n b=n*n c=n*n:out flops=2*n*n*n bytes=12*n*n rtol=1e-3
#define BLOCK 16
void matmul(int n, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < n * n; i++)
        c[i] = 0;
    for (int kk = 0; kk < n; kk += BLOCK) {
        int end = kk + BLOCK < n ? kk + BLOCK : n;
        for (int i = 0; i < n; i++)
            for (int k = kk; k < end; k++)
                for (int j = 0; j < n; j++)
                    c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
}
