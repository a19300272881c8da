// Planted: rows of 1 KiB, so that the numbers of a column fall into a few sets of the cache.
// refork: entry=matmul rows=256 n=256 a=rows*n b=n*n c=rows*n:out flops=2*rows*n*n bytes=8*rows*n+4*n*n rtol=1e-3
void matmul(int rows, int n, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
