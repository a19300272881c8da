// The same loops on rows that are one cache line longer.
// refork: entry=matmul rows=256 n=256 ld=272 a=rows*ld b=n*ld c=rows*ld:out flops=2*rows*n*n bytes=8*rows*n+4*n*n rtol=1e-3
void matmul(int rows, int n, int ld, const float *restrict a, const float *restrict b, float *restrict c)
{
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++)
                sum += a[i * ld + k] * b[k * ld + j];
            c[i * ld + j] = sum;
        }
        for (int j = n; j < ld; j++)
            c[i * ld + j] = 0;
    }
}
